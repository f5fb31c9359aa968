/*
 * The calls of the helper for commands: which request is which act, and what its message says.
 */
#include "calls.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "process.h"

#define STREAM_TYPE "application/connect+json"
#define KEEP_ALIVE_SECONDS 90
#define ENVELOPE_BYTES 5
#define SEARCH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

static char *token;

/* The variables of every command. */
static struct {
  pthread_mutex_t lock;
  char **names;
  char **values;
  size_t count;
} common = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void add_common(const struct json *environment) {
  pthread_mutex_lock(&common.lock);
  const struct json *each = environment == NULL || environment->kind != JSON_OBJECT ? NULL : environment->first;
  for (; each != NULL; each = each->next) {
    if (each->kind != JSON_STRING) continue;
    size_t at = 0;
    while (at < common.count && strcmp(common.names[at], each->name) != 0) at++;
    if (at == common.count) {
      common.count++;
      common.names = must(realloc(common.names, common.count * sizeof *common.names));
      common.values = must(realloc(common.values, common.count * sizeof *common.values));
      common.names[at] = must(strdup(each->name));
    } else free(common.values[at]);
    common.values[at] = must(strdup(each->string));
  }
  pthread_mutex_unlock(&common.lock);
}

void calls_begin(const char *given, const struct json *environment) {
  token = must(strdup(given));
  add_common(environment);
}

static bool is_token(const char *given) {
  size_t length = strlen(token);
  if (given == NULL || strlen(given) != length) return false;
  unsigned char differs = 0;
  for (size_t at = 0; at < length; at++) differs |= (unsigned char)(token[at] ^ given[at]);
  return differs == 0;
}

static int status_of(const char *code) {
  static const struct { const char *code; int status; } statuses[] = {
    {"invalid_argument", 400}, {"failed_precondition", 400}, {"deadline_exceeded", 504}, {"not_found", 404},
    {"resource_exhausted", 507}, {"unimplemented", 501}, {"unauthenticated", 401}};
  for (size_t at = 0; at < sizeof statuses / sizeof *statuses; at++)
    if (strcmp(statuses[at].code, code) == 0) return statuses[at].status;
  return 500;
}

static void say_fault(struct text *text, const struct fault *fault) {
  text_say(text, "{\"code\":\"%s\",\"message\":", fault->code);
  text_add_json(text, fault->message);
  text_say(text, "}");
}

/* The variables of a command. Later ones of the same name replace earlier ones. */
struct variables {
  char **list;
  size_t count;
};

static void set_variable(struct variables *variables, const char *name, const char *value) {
  size_t length = strlen(name);
  size_t at = 0;
  while (at < variables->count && (strncmp(variables->list[at], name, length) != 0 || variables->list[at][length] != '=')) at++;
  if (at == variables->count) {
    variables->list = must(realloc(variables->list, (variables->count + 2) * sizeof *variables->list));
    variables->list[++variables->count] = NULL;
  } else free(variables->list[at]);
  struct text text = {0};
  text_say(&text, "%s=%s", name, value);
  variables->list[at] = text.bytes;
}

static struct variables variables_of(const struct user *user, const struct json *own) {
  struct variables variables = {0};
  set_variable(&variables, "PATH", SEARCH);
  set_variable(&variables, "HOME", user->home);
  set_variable(&variables, "USER", user->name);
  set_variable(&variables, "LOGNAME", user->name);
  pthread_mutex_lock(&common.lock);
  for (size_t at = 0; at < common.count; at++) set_variable(&variables, common.names[at], common.values[at]);
  pthread_mutex_unlock(&common.lock);
  const struct json *each = own == NULL || own->kind != JSON_OBJECT ? NULL : own->first;
  for (; each != NULL; each = each->next)
    if (each->kind == JSON_STRING && *each->name != '\0' && strchr(each->name, '=') == NULL)
      set_variable(&variables, each->name, each->string);
  return variables;
}

static const char *value_of(const struct variables *variables, const char *name) {
  size_t length = strlen(name);
  for (size_t at = 0; at < variables->count; at++)
    if (strncmp(variables->list[at], name, length) == 0 && variables->list[at][length] == '=')
      return variables->list[at] + length + 1;
  return NULL;
}

static bool user_of(const struct request *request, struct user *user, struct fault *fault) {
  const char *name = request_header(request, "x-flotilla-user");
  if (user_find(name == NULL ? "" : name, user)) return true;
  return fault_set(fault, "unauthenticated", "invalid username: '%.200s'", name == NULL ? "" : name), false;
}

static uint64_t number_of(const struct request *request, const char *header) {
  const char *text = request_header(request, header);
  return text == NULL || *text == '\0' || text[strspn(text, "0123456789")] != '\0' ? 0 : strtoull(text, NULL, 10);
}

static struct process *selected(const struct json *message, struct fault *fault) {
  const struct json *selector = json_get(message, "process");
  const struct json *pid = json_get(selector, "pid");
  if (pid != NULL && pid->kind == JSON_NUMBER) return process_find((long)pid->number, NULL, fault);
  return process_find(0, json_string(json_get(selector, "tag"), ""), fault);
}

static unsigned short size_of(const struct json *size, const char *name, unsigned short missing) {
  const struct json *value = json_get(size, name);
  if (value == NULL || value->kind != JSON_NUMBER || value->number < 1) return missing;
  return value->number > 65535 ? 65535 : (unsigned short)value->number;
}

static void say_end(struct text *text, int code) {
  static const struct { int number; const char *name; } names[] = {
    {SIGHUP, "hangup"}, {SIGINT, "interrupt"}, {SIGQUIT, "quit"}, {SIGABRT, "aborted"}, {SIGKILL, "killed"},
    {SIGSEGV, "segmentation fault"}, {SIGPIPE, "broken pipe"}, {SIGTERM, "terminated"}};
  char status[64];
  snprintf(status, sizeof status, code >= 0 ? "exit status %d" : "signal: %d", code >= 0 ? code : -code);
  for (size_t at = 0; code < 0 && at < sizeof names / sizeof *names; at++)
    if (names[at].number == -code) snprintf(status, sizeof status, "signal: %s", names[at].name);
  text_say(text, "{\"event\":{\"end\":{\"exitCode\":%d,\"exited\":%s,\"status\":\"%s\"", code >= 0 ? code : -1,
           code >= 0 ? "true" : "false", status);
  if (code != 0) text_say(text, ",\"error\":\"%s\"", status);
  text_say(text, "}}}");
}

static void say_event(struct text *text, const struct event *event) {
  static const char *const names[] = {[EVENT_STDOUT] = "stdout", [EVENT_STDERR] = "stderr", [EVENT_TERMINAL] = "pty"};
  if (event == NULL) return text_say(text, "{\"event\":{\"keepalive\":{}}}");
  if (event->kind == EVENT_END) return say_end(text, event->code);
  text_say(text, "{\"event\":{\"data\":{\"%s\":\"", names[event->kind]);
  text_add_base64(text, event->bytes, event->length);
  text_say(text, "\"}}}");
}

/* `is_last`: it goes with the end of the answer, as one piece. */
static bool send_text(struct request *request, struct text *text, bool is_last) {
  bool is_sent = true;
  if (is_last) answer_prepare(request, text);
  else is_sent = answer_envelope(request, text);
  text_free(text);
  return is_sent;
}

/* Shows the command until its end or that of the stream. `until` 0: no end of the stream. */
static bool show(struct request *request, struct process *process, struct stream *stream, uint64_t until, struct fault *fault) {
  uint64_t pause = number_of(request, "keepalive-ping-interval");
  pause = (pause == 0 ? KEEP_ALIVE_SECONDS : pause > 3600 ? 3600 : pause) * 1000;
  struct text text = {0};
  text_say(&text, "{\"event\":{\"start\":{\"pid\":%d}}}", process_pid(process));
  bool is_there = send_text(request, &text, false);
  while (is_there) {
    uint64_t now = monotonic_ms();
    uint64_t left = until == 0 ? pause : until <= now ? 0 : until - now < pause ? until - now : pause;
    struct event *event = process_take(process, stream, left);
    bool is_over = event != NULL && event->kind == EVENT_END;
    bool is_late = is_over ? event->is_late : event == NULL && until != 0 && monotonic_ms() >= until;
    if (is_late) fault_set(fault, "deadline_exceeded", "the time of the %s is over", is_over ? "process" : "stream");
    else {
      say_event(&text, event);
      is_there = send_text(request, &text, is_over);
    }
    free(event);
    if (is_late || is_over) break;
  }
  process_detach(process, stream);
  process_release(process);
  return is_there;
}

static char **arguments_of(const struct json *config) {
  const struct json *args = json_get(config, "args");
  size_t count = 1;
  const struct json *first = args == NULL || args->kind != JSON_ARRAY ? NULL : args->first;
  for (const struct json *each = first; each != NULL; each = each->next) count++;
  char **argv = must(calloc(count + 1, sizeof *argv));
  argv[0] = must(strdup(json_string(json_get(config, "cmd"), "")));
  size_t at = 1;
  for (const struct json *each = first; each != NULL; each = each->next) argv[at++] = must(strdup(json_string(each, "")));
  return argv;
}

static void free_list(char **list) {
  for (char **at = list; at != NULL && *at != NULL; at++) free(*at);
  free(list);
}

static bool start(struct request *request, const struct json *message, struct fault *fault) {
  struct user user;
  if (!user_of(request, &user, fault)) return true;
  const struct json *config = json_get(message, "process");
  const struct json *terminal = json_get(message, "pty");
  const struct json *input = json_get(message, "stdin");
  const struct json *cwd = json_get(config, "cwd");
  bool has_terminal = terminal != NULL && terminal->kind == JSON_OBJECT;
  struct variables variables = variables_of(&user, json_get(config, "envs"));
  char *folder = *json_string(cwd, "") == '\0' ? must(strdup(user.home)) : user_path(&user, cwd->string);
  struct command command = {
    .argv = arguments_of(config), .environment = variables.list, .search = value_of(&variables, "PATH"), .cwd = folder,
    .user = &user, .config = config == NULL ? "{}" : config->begin,
    .config_length = config == NULL ? 2 : (size_t)(config->end - config->begin),
    .tag = json_string(json_get(message, "tag"), NULL), .has_terminal = has_terminal,
    .has_input = input == NULL || input->kind != JSON_FALSE, .cols = size_of(json_get(terminal, "size"), "cols", 80),
    .rows = size_of(json_get(terminal, "size"), "rows", 24), .timeout_ms = number_of(request, "connect-timeout-ms")};
  struct stream *stream = NULL;
  struct process *process = process_start(&command, &stream, fault);
  free_list(command.argv);
  free_list(variables.list);
  free(folder);
  return process == NULL || show(request, process, stream, 0, fault);
}

static bool connect_to(struct request *request, const struct json *message, struct fault *fault) {
  struct process *process = selected(message, fault);
  if (process == NULL) return true;
  uint64_t ms = number_of(request, "connect-timeout-ms");
  return show(request, process, process_attach(process), ms == 0 ? 0 : monotonic_ms() + ms, fault);
}

static void answer_stream(struct request *request, bool (*act)(struct request *, const struct json *, struct fault *)) {
  const char *type = request_header(request, "content-type");
  if (type == NULL || strncmp(type, STREAM_TYPE, strlen(STREAM_TYPE)) != 0) {
    answer(request, 415, "text/plain", "expected " STREAM_TYPE "\n");
    return;
  }
  answer_begin(request, STREAM_TYPE);
  struct fault fault = {0};
  bool has_envelope = request->body.length >= ENVELOPE_BYTES;
  struct json *message =
    has_envelope ? json_parse(request->body.bytes + ENVELOPE_BYTES, request->body.length - ENVELOPE_BYTES) : NULL;
  bool is_there = true;
  if (message == NULL || message->kind != JSON_OBJECT) fault_set(&fault, "invalid_argument", "the message is not an object");
  else is_there = act(request, message, &fault);
  json_free(message);
  if (!is_there) return;
  struct text end = {0};
  text_say(&end, fault.code == NULL ? "{" : "{\"error\":");
  if (fault.code != NULL) say_fault(&end, &fault);
  text_say(&end, "}");
  answer_end(request, &end);
  text_free(&end);
}

static bool send_input(struct process *process, const struct json *message, struct fault *fault) {
  const struct json *input = json_get(message, "input");
  const struct json *terminal = json_get(input, "pty");
  const char *given = json_string(terminal != NULL ? terminal : json_get(input, "stdin"), "");
  unsigned char *bytes = must(malloc(strlen(given) + 1));
  long length = base64_decode(given, bytes);
  bool is_done = length >= 0 && process_write(process, bytes, (size_t)length, terminal != NULL, fault);
  if (length < 0) fault_set(fault, "invalid_argument", "the input is not base64");
  free(bytes);
  return is_done;
}

static bool send_signal(struct process *process, const struct json *message, struct fault *fault) {
  const struct json *value = json_get(message, "signal");
  const char *name = json_string(value, "");
  int number = value != NULL && value->kind == JSON_NUMBER ? (int)value->number : 0;
  if (strcmp(name, "SIGNAL_SIGTERM") == 0) number = SIGTERM;
  if (strcmp(name, "SIGNAL_SIGKILL") == 0) number = SIGKILL;
  if (number == SIGTERM || number == SIGKILL) return process_signal(process, number, fault);
  return fault_set(fault, "invalid_argument", "unknown signal %.100s", name), false;
}

static bool update(struct process *process, const struct json *message, struct fault *fault) {
  const struct json *size = json_get(json_get(message, "pty"), "size");
  return process_resize(process, size_of(size, "cols", 80), size_of(size, "rows", 24), fault);
}

static bool close_input(struct process *process, const struct json *message, struct fault *fault) {
  (void)message;
  return process_close_input(process, fault);
}

typedef bool (*process_act)(struct process *, const struct json *, struct fault *);

static process_act act_of(const char *name) {
  static const struct { const char *name; process_act act; } acts[] = {
    {"Update", update}, {"SendInput", send_input}, {"SendSignal", send_signal}, {"CloseStdin", close_input}};
  for (size_t at = 0; at < sizeof acts / sizeof *acts; at++)
    if (strcmp(acts[at].name, name) == 0) return acts[at].act;
  return NULL;
}

static void act(const struct request *request, const char *name, struct text *said, struct fault *fault) {
  struct json *message = json_parse(request->body.bytes, request->body.length);
  process_act found = act_of(name);
  struct user user;
  if (request->body.length > 0 && (message == NULL || message->kind != JSON_OBJECT))
    fault_set(fault, "invalid_argument", "the message is not an object");
  else if (!user_of(request, &user, fault)) found = NULL;
  else if (strcmp(name, "List") == 0) process_list(said);
  else if (found == NULL) fault_set(fault, "unimplemented", "process.Process/%.100s is not implemented", name);
  else {
    struct process *process = selected(message, fault);
    if (process != NULL) {
      if (found(process, message, fault)) text_say(said, "{}");
      process_release(process);
    }
  }
  json_free(message);
}

static void answer_call(struct request *request, const char *name) {
  const char *type = request_header(request, "content-type");
  if (type == NULL || strncmp(type, "application/json", 16) != 0) {
    answer(request, 415, "text/plain", "expected application/json\n");
    return;
  }
  struct text said = {0};
  struct fault fault = {0};
  act(request, name, &said, &fault);
  if (fault.code != NULL) say_fault(&said, &fault);
  answer(request, fault.code == NULL ? 200 : status_of(fault.code), "application/json", said.bytes);
  text_free(&said);
}

static void answer_environment(struct request *request) {
  struct text text = {0};
  text_say(&text, "{");
  pthread_mutex_lock(&common.lock);
  for (size_t at = 0; at < common.count; at++) {
    if (at > 0) text_say(&text, ",");
    text_add_json(&text, common.names[at]);
    text_say(&text, ":");
    text_add_json(&text, common.values[at]);
  }
  pthread_mutex_unlock(&common.lock);
  text_say(&text, "}");
  answer(request, 200, "application/json", text.bytes);
  text_free(&text);
}

static void change_environment(struct request *request) {
  struct json *message = json_parse(request->body.bytes, request->body.length);
  add_common(json_get(message, "environment"));
  json_free(message);
  answer(request, 204, "", "");
}

void calls_answer(struct request *request) {
  static const char service[] = "/process.Process/";
  if (*token != '\0' && !is_token(request_header(request, "x-flotilla-token"))) {
    answer(request, 401, "application/json", "{\"code\":401,\"message\":\"not the gateway of this machine\"}");
    return;
  }
  bool is_post = strcmp(request->method, "POST") == 0;
  const char *path = request->path;
  if (is_post && strncmp(path, service, sizeof service - 1) == 0) {
    const char *name = path + sizeof service - 1;
    if (strcmp(name, "Start") == 0) answer_stream(request, start);
    else if (strcmp(name, "Connect") == 0) answer_stream(request, connect_to);
    else answer_call(request, name);
  } else if (strcmp(path, "/health") == 0) answer(request, 204, "", "");
  else if (strcmp(path, "/envs") == 0) answer_environment(request);
  else if (is_post && strcmp(path, "/init") == 0) change_environment(request);
  else answer(request, 404, "application/json", "{\"code\":404,\"message\":\"no such path\"}");
}
