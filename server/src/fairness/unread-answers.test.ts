/**
 * Which unread answers lose their connection.
 */
import assert from "node:assert/strict";
import { EventEmitter } from "node:events";
import { test } from "node:test";
import { UnreadAnswers } from "./unread-answers.ts";

class Answer extends EventEmitter {
  readonly writableLength: number;
  isDestroyed = false;

  constructor(bytes: number) {
    super();
    this.writableLength = bytes;
  }

  destroy(): this {
    this.isDestroyed = true;
    this.emit("close");
    return this;
  }
}

function held(unread: UnreadAnswers, holder: string, bytes: number): Answer {
  const answer = new Answer(bytes);
  unread.hold(holder, answer as unknown as Parameters<UnreadAnswers["hold"]>[1]);
  return answer;
}

const destroyed = (...answers: Answer[]): boolean[] => answers.map(({ isDestroyed }) => isDestroyed);

test("above its share a holder loses its oldest answers, and no other holder does", () => {
  const unread = new UnreadAnswers({ perHolder: 100, all: 1_000 });
  const other = held(unread, "b", 90);
  const mine = [held(unread, "a", 40), held(unread, "a", 40), held(unread, "a", 40)];
  assert.deepEqual(destroyed(other, ...mine), [false, true, false, false]);
  assert.equal(unread.total, 170);
});

test("above the total the holder that has most loses its oldest answer, also when another one's answer was the last", () => {
  const unread = new UnreadAnswers({ perHolder: 100, all: 150 });
  const large = [held(unread, "a", 60), held(unread, "a", 30)];
  const small = [held(unread, "b", 50), held(unread, "b", 20)];
  assert.deepEqual(destroyed(...large, ...small), [true, false, false, false]);
});

test("an answer that was read, or whose caller has gone, counts no more", () => {
  const unread = new UnreadAnswers({ perHolder: 100, all: 150 });
  held(unread, "a", 90).emit("close");
  held(unread, "a", 0);
  const next = held(unread, "a", 90);
  assert.deepEqual([unread.total, next.isDestroyed], [90, false]);
  next.emit("close");
  assert.equal(unread.total, 0);
});

test("the last answer is given time whatever its size", () => {
  const unread = new UnreadAnswers({ perHolder: 100, all: 150 });
  const answers = [held(unread, "a", 10), held(unread, "a", 200)];
  assert.deepEqual(destroyed(...answers), [true, false]);
  assert.equal(unread.total, 200);
});
