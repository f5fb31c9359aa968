/* Starting a command. */
#ifndef SPAWN_H
#define SPAWN_H

#include "process.h"

struct spawned {
  pid_t pid;
  /* -1: not there. */
  int input;
  int outputs[2];
  int terminal;
};

/* False: it does not run, and `fault` says why. */
bool spawn(const struct command *command, struct spawned *spawned, struct fault *fault);

#endif
