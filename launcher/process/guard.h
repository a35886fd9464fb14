#pragma once

#include <signal.h>

#include <functional>

// The launcher's processes, from the outside in:
//
//   guard (the pid the user sees)  ──►  launcher  ──►  ranks  ──►  whatever they start
//
// This folder starts, watches and stops the processes of one generation on this machine, and sees to it that
// none of them outlives the launcher: neither a rank nor a grandchild that called setsid, forked twice or
// cleared its environment, and not even after `kill -9` of the guard or of the launcher. What does it: the
// guard and the launcher are both child subreapers, so that an orphan falls to one of them and never to init;
// parent-death signals tell each level of the death of the one above; and a sweep (descendants.h) ends what
// is left.
//
// Everything but the guard runs on one EventLoop and one thread. Only job/ and cli/ use this folder.
namespace lockstep::process {

// Sent to the launcher by the kernel when its guard has died. Its default action ends the launcher (and so
// its ranks); a SignalWatcher makes of it "kill every descendant, then exit", which also reaches the
// grandchildren.
inline int GuardGoneSignal() { return SIGRTMIN + 1; }

// Runs `launcher_main` in a child process and guards it from this one. Returns in the guard only, with the
// exit code for main() to return; the child ends with std::exit(launcher_main()).
//
// Call it before any thread exists and before anything large is allocated. It sets SIGCHLD to its default, in
// the child also SIGPIPE, SIGTTOU and SIGTTIN to ignored.
//
// The guard stays in the terminal's foreground group and passes SIGINT, SIGTERM, SIGHUP and SIGQUIT on to the
// launcher (not those that were ignored when it was started: nohup, `cmd &` in a script); a third SIGINT ends
// everything at once, should the launcher hang. The launcher has a process group of its own: it may write to
// the terminal even under `stty tostop`, and reading from it fails with EIO. Ctrl-Z stops the guard only: the
// job goes on in the background and `fg` brings it back. Signals sent to a stopped guard arrive when it is
// continued.
//
// When the launcher has ended, every descendant that is left is killed. The exit code is the launcher's, or
// 128 + n when signal n ended it, which is said in one line on standard error unless the guard itself passed
// that signal on.
int RunGuarded(const std::function<int()>& launcher_main);

}  // namespace lockstep::process
