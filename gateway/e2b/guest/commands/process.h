/* The commands and terminals of a sandbox. */
#ifndef PROCESS_H
#define PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "text.h"
#include "users.h"

struct process;
struct stream;

enum event_kind { EVENT_NONE, EVENT_STDOUT, EVENT_STDERR, EVENT_TERMINAL, EVENT_END };

struct event {
  enum event_kind kind;
  size_t length;
  /* The exit code, of an end; below 0 the signal. */
  int code;
  /* Whether its time was over. */
  bool is_late;
  struct event *next;
  unsigned char bytes[];
};

struct command {
  char **argv;
  /* `NAME=value`, and a NULL. */
  char **environment;
  /* PATH of the environment; NULL: none. */
  const char *search;
  const char *cwd;
  const struct user *user;
  /* As in the list of processes, of JSON. */
  const char *config;
  size_t config_length;
  /* NULL: none. */
  const char *tag;
  bool has_terminal;
  bool has_input;
  unsigned short cols;
  unsigned short rows;
  /* 0: no end. */
  uint64_t timeout_ms;
};

/* What is wrong, as a Connect code and a sentence. */
struct fault {
  const char *code;
  char message[512];
};
void fault_set(struct fault *fault, const char *code, const char *format, ...) __attribute__((format(printf, 3, 4)));

uint64_t monotonic_ms(void);

/* It runs, and `stream` has all that it writes. NULL: it does not, and `fault` says why. */
struct process *process_start(const struct command *command, struct stream **stream, struct fault *fault);
/* By its number, or by its tag if that is not NULL. NULL: there is none, and `fault` says so. */
struct process *process_find(long pid, const char *tag, struct fault *fault);
void process_release(struct process *process);
pid_t process_pid(const struct process *process);
/* What it writes from now on. */
struct stream *process_attach(struct process *process);
void process_detach(struct process *process, struct stream *stream);
/* The next event, which the caller frees; NULL after that time. */
struct event *process_take(struct process *process, struct stream *stream, uint64_t ms);

bool process_write(struct process *process, const void *bytes, size_t length, bool is_terminal, struct fault *fault);
bool process_close_input(struct process *process, struct fault *fault);
bool process_resize(struct process *process, unsigned short cols, unsigned short rows, struct fault *fault);
bool process_signal(struct process *process, int number, struct fault *fault);
/* The running ones, as JSON. */
void process_list(struct text *text);

#endif
