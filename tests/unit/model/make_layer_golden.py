"""Makes the losses in layer_golden_test.cc with PyTorch: pip install torch numpy; python make_layer_golden.py

The networks are those of layer_nets.h. Parameters are given in Keras' shapes and order, as Lockstep's checkpoints
have them, and brought into PyTorch's here.
"""

import numpy as np
import torch
import torch.nn.functional as F

SAMPLES, STEPS, RATE = 8, 6, 0.2
torch.set_default_dtype(torch.float64)


def wave(count, step, amplitude):
    """Values that need no random generator: amplitude * sin(step * (i + 1)), as float32 has them."""
    return (amplitude * np.sin(step * (np.arange(count) + 1.0))).astype("float32").astype("float64")


class Parameters:
    """Takes tensors of given shapes from one flat wave, in order; the second time the same ones."""

    def __init__(self, count):
        self.flat, self.at, self.tensors, self.next = wave(count, 0.7, 0.4), 0, [], 0

    def __call__(self, *shape):
        if self.next == len(self.tensors):
            size = int(np.prod(shape))
            self.tensors.append(torch.tensor(self.flat[self.at : self.at + size].reshape(shape), requires_grad=True))
            self.at += size
        self.next += 1
        return self.tensors[self.next - 1]


def same(extent, size, stride):
    """TensorFlow's padding before and after."""
    total = max(0, (-(-extent // stride) - 1) * stride + size - extent)
    return total // 2, total - total // 2


def pad(x, size, stride, value=0.0):
    before, after = same(x.shape[2], size, stride)
    left, right = same(x.shape[3], size, stride)
    return F.pad(x, (left, right, before, after), value=value)


def conv(p, x, filters, size, stride, bias):
    kernel = p(size, size, x.shape[1], filters).permute(3, 2, 0, 1)
    return F.conv2d(pad(x, size, stride), kernel, p(filters) if bias else None, stride)


def dense(p, x, units):
    return x @ p(x.shape[1], units) + p(units)


def batch_norm(p, x):
    return F.batch_norm(x, None, None, p(x.shape[1]), p(x.shape[1]), training=True, eps=1e-3)


def response(x, radius, bias, alpha, beta):
    """PyTorch divides alpha by the number of channels in the window, TensorFlow does not."""
    size = 2 * radius + 1
    return F.local_response_norm(x, size, alpha * size, beta, bias)


def channels_last(x):
    return x.permute(0, 2, 3, 1).reshape(len(x), -1)


def towers(p, x):
    x = F.relu(conv(p, x, 20, 5, 1, True))
    x = F.max_pool2d(pad(x, 3, 2, -np.inf), 3, 2)
    x = response(x, 2, 1, 0.3, 0.75)
    x = response(conv(p, x, 6, 3, 2, True), 4, 1, 1, 0.5)
    x = response(F.avg_pool2d(x, 2), 1, 2, 1, 0.6)
    return dense(p, F.gelu(dense(p, channels_last(x), 5)), 3)


def body(p, x, filters, stride):
    x = F.relu(batch_norm(p, conv(p, x, filters, 3, stride, False)))
    return batch_norm(p, conv(p, x, filters, 3, 1, False))


def resnet(p, x):
    x = F.relu(batch_norm(p, conv(p, x, 4, 3, 1, False)))
    x = F.relu(body(p, x, 4, 1) + x)
    made = body(p, x, 6, 2)
    x = F.relu(made + batch_norm(p, conv(p, x, 6, 1, 2, False)))
    return dense(p, x.mean((2, 3)), 3)


def words(p, x):
    x = p(7, 4)[x.long()]
    x = F.layer_norm(x, (4,), p(4), p(4), eps=1e-3)
    return dense(p, F.softmax(dense(p, x.reshape(len(x), -1), 5), -1), 3)


def run(name, net, sample, numbers=False):
    p = Parameters(20000)
    count = SAMPLES * int(np.prod(sample))
    if numbers:
        x = torch.tensor((np.arange(count) * 5 + np.arange(count) // 7) % 7).reshape(SAMPLES, *sample)
    else:
        x = torch.tensor(wave(count, 1.3, 1.0)).reshape(SAMPLES, *sample).permute(0, 3, 1, 2)
    labels = torch.arange(SAMPLES) % 3
    losses = []
    for _ in range(STEPS):
        p.next = 0
        loss = F.cross_entropy(net(p, x), labels)
        gradients = torch.autograd.grad(loss, p.tensors)
        losses.append(loss.item())
        with torch.no_grad():
            for tensor, gradient in zip(p.tensors, gradients):
                tensor -= RATE * gradient
    print(name, p.at, "parameters:", ", ".join(f"{value:.7f}" for value in losses))


print("torch", torch.__version__)
run("Towers", towers, (9, 9, 3))
run("ResNet", resnet, (7, 7, 3))
run("Words", words, (6,), numbers=True)
