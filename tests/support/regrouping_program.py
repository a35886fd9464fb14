"""A program that can regroup (docs/contract.md, "Regrouping"), for the tests of the launcher.

regrouping_program.py FOLDER [RANK=BEHAVIOUR ...]

Takes a step whenever FOLDER/step is longer than its state, and ends well once FOLDER/done is there. Its state
is the number of steps it has taken; a new process has none. What it does is on standard output. BEHAVIOUR, of
the process that was started as that rank:

  plain     never says that it can regroup
  silent    does not answer when it is asked
  rubbish   answers with lines that are no event, and goes on with its steps
  twice     answers twice
  deaf      answers, but never reads what it is told afterwards
  stubborn  does not end when it is asked to stop
  lost      once FOLDER/lost is there, answers without having been asked
"""
import json
import os
import select
import signal
import sys

folder = sys.argv[1]
behaviour = dict(argument.split("=") for argument in sys.argv[2:]).get(os.environ["RANK"], "")
control = int(os.environ["LOCKSTEP_CONTROL_FD"])
steps = 0
parked = False


def say(text):
    print(text, flush=True)


def tell(**event):
    os.write(int(os.environ["LOCKSTEP_EVENTS_FD"]), (json.dumps(event) + "\n").encode())


def stop(*_):
    say(f"asked to stop while {'parked' if parked else 'running'}")
    if behaviour != "stubborn":
        os._exit(75)


def begin(environment):
    rank, world = environment["RANK"], environment["WORLD_SIZE"]
    say(f"generation {environment['LOCKSTEP_GENERATION']} rank {rank} of {world} holds {steps} pid {os.getpid()}")
    if behaviour == "plain":
        tell(event="ready")
    else:
        tell(event="ready", regroups=True)


def park():
    global parked
    parked = True
    tell(event="regroup", step=steps)
    if behaviour == "twice":
        tell(event="regroup", step=steps)


def obey(line):
    global parked
    message = json.loads(line)
    if message["control"] == "generation":
        parked = False
        begin(message["environment"])
    elif behaviour == "rubbish":
        os.write(int(os.environ["LOCKSTEP_EVENTS_FD"]), b'regroup\n{"event":"regroup","step":-1}\n[[[\n')
    elif behaviour != "silent" and not parked:
        park()


def present(name):
    return os.path.exists(os.path.join(folder, name))


signal.signal(signal.SIGTERM, stop)
begin(os.environ)
pending = b""
was_lost = False
while True:
    deaf = behaviour == "deaf" and parked
    readable, _, _ = select.select([] if deaf else [control], [], [], 0.01)
    if readable:
        more = os.read(control, 65536)
        if not more:
            sys.exit(11)
        *lines, pending = (pending + more).split(b"\n")
        for line in lines:
            obey(line)
    if parked:
        continue
    if behaviour == "lost" and present("lost") and not was_lost:
        was_lost = True
        park()
    elif present("done"):
        sys.exit(0)
    elif present("step") and os.path.getsize(os.path.join(folder, "step")) > steps:
        steps += 1
        tell(event="step", step=steps)
