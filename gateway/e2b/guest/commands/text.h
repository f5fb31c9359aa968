/* Growing text, base64, and JSON. */
#ifndef TEXT_H
#define TEXT_H

#include <stdbool.h>
#include <stddef.h>

struct text {
  char *bytes;
  size_t length;
  size_t room;
};

void *must(void *allocated);
void text_add(struct text *text, const void *bytes, size_t length);
void text_say(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* As a string of JSON, with its quotes. */
void text_add_json(struct text *text, const char *string);
void text_add_base64(struct text *text, const unsigned char *bytes, size_t length);
void text_free(struct text *text);

/* Returns the number of bytes; -1: not base64. `out` has room for 3/4 of the length. */
long base64_decode(const char *string, unsigned char *out);

enum json_kind { JSON_NULL, JSON_FALSE, JSON_TRUE, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT };

struct json {
  enum json_kind kind;
  /* The name of a member of an object. */
  char *name;
  /* A string, decoded; it has no NUL. */
  char *string;
  double number;
  /* Where it is in the source. */
  const char *begin;
  const char *end;
  struct json *first;
  struct json *next;
};

/* NULL when it is not JSON, is too deep, or has a string with a NUL. `source` ends with a NUL. */
struct json *json_parse(const char *source, size_t length);
void json_free(struct json *json);
/* The member of that name; NULL where there is none, and where `json` is not an object. */
const struct json *json_get(const struct json *json, const char *name);
/* The string; `missing` for anything else. */
const char *json_string(const struct json *json, const char *missing);

#endif
