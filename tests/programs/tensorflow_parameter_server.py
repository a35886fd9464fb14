"""As TensorFlow's tutorial "Parameter server training": a coordinator (chief), workers and servers, found by TF_CONFIG."""

import sys

import tensorflow as tf

STEPS = 300


def main(folder):
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if resolver.task_type in ("worker", "ps"):
        server = tf.distribute.Server(resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id,
                                      protocol="grpc")
        server.join()
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        weights = tf.Variable(tf.zeros((32, 4)))
        step = tf.Variable(0, dtype=tf.int64)
    checkpoints = tf.train.CheckpointManager(tf.train.Checkpoint(weights=weights, step=step), folder, max_to_keep=1)
    if checkpoints.restore_or_initialize():
        print(f"chief resumes after step {int(step.numpy())}", flush=True)
    classes = tf.random.stateless_normal((4, 32), (1, 2))

    @tf.function
    def train():
        def replica():
            labels = tf.random.uniform((64,), 0, 4, tf.int32)
            images = tf.gather(classes, labels) + 0.5 * tf.random.normal((64, 32))
            with tf.GradientTape() as tape:
                logits = tf.matmul(images, weights)
                loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
            weights.assign_sub(0.1 * tape.gradient(loss, weights))
            return loss

        return strategy.run(replica)

    while int(step.numpy()) < STEPS:
        losses = [coordinator.schedule(train) for _ in range(5)]
        coordinator.join()
        step.assign_add(5)
        print(f"step {int(step.numpy())}/{STEPS} loss {float(losses[-1].fetch()):.4f}", flush=True)
        checkpoints.save()
    print(f"chief done, loss {float(losses[-1].fetch()):.4f}", flush=True)


main(sys.argv[1])
