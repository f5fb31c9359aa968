/**
 * Prints the events of Node's test runner for one test file as JSON lines, which run-file.ts reads.
 *
 * Always: one line for each test and suite that ended, in the order of their ends, and nothing else.
 */
import type { TestEvent } from "node:test/reporters";
import { inspect } from "node:util";

/** One line. `error` is null unless it failed. */
export interface TestRecord {
  readonly name: string;
  readonly isSuite: boolean;
  /** How many suites it is in. */
  readonly nesting: number;
  readonly ms: number;
  /** The reason for skipping; null: not skipped. */
  readonly skip: string | null;
  readonly isTodo: boolean;
  readonly error: string | null;
}

// tidy-allow default export: Node's test runner requires a reporter to be a default export
export default async function* report(events: AsyncIterable<TestEvent>): AsyncGenerator<string> {
  for await (const event of events) {
    if (event.type !== "test:pass" && event.type !== "test:fail") continue;
    const { name, details, nesting, skip, todo } = event.data;
    const error = event.type === "test:fail" ? event.data.details.error : null;
    const record: TestRecord = {
      name,
      isSuite: details.type === "suite",
      nesting,
      ms: details.duration_ms,
      skip: typeof skip === "string" ? skip : skip ? "no reason given" : null,
      isTodo: todo !== undefined && todo !== false,
      error: error === null ? null : inspect(error.cause ?? error, { depth: 6, breakLength: 120 }),
    };
    yield `${JSON.stringify(record)}\n`;
  }
}
