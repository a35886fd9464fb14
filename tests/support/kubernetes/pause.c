/* The first process of every pod on a test node: holds the pod's namespaces, reaps what is orphaned, ends when told. */
#include <signal.h>
#include <unistd.h>

static void end(int number) {
  (void)number;
  _exit(0);
}

int main(void) {
  signal(SIGTERM, end);
  signal(SIGINT, end);
  signal(SIGCHLD, SIG_IGN);
  for (;;) pause();
}
