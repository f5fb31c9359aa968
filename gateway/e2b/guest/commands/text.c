/*
 * Growing text, base64, and JSON.
 *
 * Always: JSON is parsed to DEPTH_MAX, so that no input uses up the stack. A process that has no memory ends.
 */
#include "text.h"

#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH_MAX 64

void *must(void *allocated) {
  if (allocated == NULL) abort();
  return allocated;
}

static void make_room(struct text *text, size_t more) {
  size_t needed = text->length + more + 1;
  if (needed <= text->room) return;
  while (text->room < needed) text->room = text->room < 256 ? 256 : text->room * 2;
  text->bytes = must(realloc(text->bytes, text->room));
}

void text_add(struct text *text, const void *bytes, size_t length) {
  make_room(text, length);
  if (length > 0) memcpy(text->bytes + text->length, bytes, length);
  text->length += length;
  text->bytes[text->length] = '\0';
}

void text_say(struct text *text, const char *format, ...) {
  va_list given;
  va_start(given, format);
  char *said = NULL;
  int length = vasprintf(&said, format, given);
  va_end(given);
  if (length < 0) abort();
  text_add(text, said, (size_t)length);
  free(said);
}

void text_add_json(struct text *text, const char *string) {
  text_add(text, "\"", 1);
  for (const char *at = string; *at != '\0'; at++) {
    unsigned char byte = (unsigned char)*at;
    if (byte == '"' || byte == '\\') text_say(text, "\\%c", byte);
    else if (byte < 0x20) text_say(text, "\\u%04x", byte);
    else text_add(text, at, 1);
  }
  text_add(text, "\"", 1);
}

void text_free(struct text *text) {
  free(text->bytes);
  *text = (struct text){0};
}

static const char DIGITS[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void text_add_base64(struct text *text, const unsigned char *bytes, size_t length) {
  make_room(text, (length + 2) / 3 * 4);
  char *out = text->bytes + text->length;
  for (size_t at = 0; at < length; at += 3) {
    size_t left = length - at;
    uint32_t group = (uint32_t)bytes[at] << 16;
    if (left > 1) group |= (uint32_t)bytes[at + 1] << 8;
    if (left > 2) group |= bytes[at + 2];
    *out++ = DIGITS[group >> 18];
    *out++ = DIGITS[group >> 12 & 63];
    *out++ = left > 1 ? DIGITS[group >> 6 & 63] : '=';
    *out++ = left > 2 ? DIGITS[group & 63] : '=';
  }
  *out = '\0';
  text->length = (size_t)(out - text->bytes);
}

long base64_decode(const char *string, unsigned char *out) {
  uint32_t group = 0;
  unsigned bits = 0;
  long length = 0;
  for (; *string != '\0' && *string != '='; string++) {
    const char *digit = strchr(DIGITS, *string);
    if (digit == NULL) return -1;
    group = group << 6 | (uint32_t)(digit - DIGITS);
    bits += 6;
    if (bits < 8) continue;
    bits -= 8;
    out[length++] = (unsigned char)(group >> bits);
  }
  return string[strspn(string, "=")] == '\0' ? length : -1;
}

struct parser {
  const char *at;
  const char *end;
  unsigned depth;
};

static struct json *value_of(struct parser *parser);

static void skip_space(struct parser *parser) {
  while (parser->at < parser->end && strchr(" \t\r\n", *parser->at) != NULL && *parser->at != '\0') parser->at++;
}

static bool take(struct parser *parser, char byte) {
  skip_space(parser);
  if (parser->at >= parser->end || *parser->at != byte) return false;
  parser->at++;
  return true;
}

static long hex_of(struct parser *parser) {
  if (parser->end - parser->at < 4) return -1;
  long value = 0;
  for (int count = 0; count < 4; count++) {
    char byte = *parser->at++;
    const char *found = byte == '\0' ? NULL : strchr("0123456789abcdef", byte | 0x20);
    if (found == NULL) return -1;
    value = value * 16 + (found - "0123456789abcdef");
  }
  return value;
}

static void add_character(struct text *text, unsigned long code) {
  unsigned char bytes[4];
  size_t length = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
  static const unsigned char first[] = {0, 0, 0xc0, 0xe0, 0xf0};
  for (size_t at = length; at-- > 1; code >>= 6) bytes[at] = (unsigned char)(0x80 | (code & 0x3f));
  bytes[0] = (unsigned char)(first[length] | code);
  text_add(text, bytes, length);
}

/* After its backslash. */
static bool add_escape(struct parser *parser, struct text *text) {
  if (parser->at >= parser->end) return false;
  char byte = *parser->at++;
  static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
  const char *plain = byte == '\0' ? NULL : strchr(from, byte);
  if (plain != NULL) {
    text_add(text, &to[plain - from], 1);
    return true;
  }
  long code = byte == 'u' ? hex_of(parser) : -1;
  if (code <= 0) return false;
  if (code >= 0xd800 && code < 0xdc00 && parser->end - parser->at >= 6 && parser->at[0] == '\\' && parser->at[1] == 'u') {
    parser->at += 2;
    long low = hex_of(parser);
    if (low < 0xdc00 || low > 0xdfff) return false;
    code = 0x10000 + (code - 0xd800) * 0x400 + (low - 0xdc00);
  }
  add_character(text, code >= 0xd800 && code < 0xe000 ? 0xfffd : (unsigned long)code);
  return true;
}

/* After its opening quote; NULL: it is not a string. */
static char *string_of(struct parser *parser) {
  struct text text = {0};
  text_add(&text, "", 0);
  while (parser->at < parser->end) {
    char byte = *parser->at++;
    if (byte == '"') return text.bytes;
    if ((unsigned char)byte < 0x20) break;
    if (byte != '\\') text_add(&text, &byte, 1);
    else if (!add_escape(parser, &text)) break;
  }
  text_free(&text);
  return NULL;
}

/* The members after the opening bracket. */
static bool members_of(struct parser *parser, struct json *json) {
  bool is_object = json->kind == JSON_OBJECT;
  char closing = is_object ? '}' : ']';
  if (take(parser, closing)) return true;
  struct json **last = &json->first;
  do {
    char *name = NULL;
    if (is_object) {
      if (!take(parser, '"') || (name = string_of(parser)) == NULL) return false;
      if (!take(parser, ':')) {
        free(name);
        return false;
      }
    }
    struct json *member = value_of(parser);
    if (member == NULL) {
      free(name);
      return false;
    }
    member->name = name;
    *last = member;
    last = &member->next;
  } while (take(parser, ','));
  return take(parser, closing);
}

static bool take_word(struct parser *parser, const char *word) {
  size_t length = strlen(word);
  if ((size_t)(parser->end - parser->at) < length || memcmp(parser->at, word, length) != 0) return false;
  parser->at += length;
  return true;
}

static bool read_value(struct parser *parser, struct json *json) {
  char byte = *parser->at;
  if (byte == '{' || byte == '[') {
    parser->at++;
    json->kind = byte == '{' ? JSON_OBJECT : JSON_ARRAY;
    if (++parser->depth > DEPTH_MAX || !members_of(parser, json)) return false;
    parser->depth--;
    return true;
  }
  if (byte == '"') {
    parser->at++;
    json->kind = JSON_STRING;
    return (json->string = string_of(parser)) != NULL;
  }
  if (take_word(parser, "true")) return (json->kind = JSON_TRUE, true);
  if (take_word(parser, "false")) return (json->kind = JSON_FALSE, true);
  if (take_word(parser, "null")) return (json->kind = JSON_NULL, true);
  if (byte != '-' && (byte < '0' || byte > '9')) return false;
  char *end = NULL;
  json->kind = JSON_NUMBER;
  json->number = strtod(parser->at, &end);
  if (end > parser->end || !isfinite(json->number)) return false;
  parser->at = end;
  return true;
}

static struct json *value_of(struct parser *parser) {
  skip_space(parser);
  if (parser->at >= parser->end) return NULL;
  struct json *json = must(calloc(1, sizeof *json));
  json->begin = parser->at;
  if (!read_value(parser, json)) {
    json_free(json);
    return NULL;
  }
  json->end = parser->at;
  return json;
}

struct json *json_parse(const char *source, size_t length) {
  struct parser parser = {.at = source, .end = source + length};
  struct json *json = value_of(&parser);
  skip_space(&parser);
  if (json == NULL || parser.at == parser.end) return json;
  json_free(json);
  return NULL;
}

void json_free(struct json *json) {
  while (json != NULL) {
    struct json *next = json->next;
    json_free(json->first);
    free(json->name);
    free(json->string);
    free(json);
    json = next;
  }
}

const struct json *json_get(const struct json *json, const char *name) {
  if (json == NULL || json->kind != JSON_OBJECT) return NULL;
  for (const struct json *each = json->first; each != NULL; each = each->next)
    if (strcmp(each->name, name) == 0) return each;
  return NULL;
}

const char *json_string(const struct json *json, const char *missing) {
  return json != NULL && json->kind == JSON_STRING ? json->string : missing;
}
