/**
 * The `flotilla` command: passes the process's arguments, environment and streams to the command tree and
 * ends with its exit code. The only file of the command line that touches the process.
 *
 * Always: the process does not exit before its output is written. A reader that closes the pipe (`| head`)
 * ends it silently, as with other programs; output that cannot be written for another reason ends it with an
 * error. Neither ends a program that says it does not need its output. A command that was stopped waits for
 * nothing.
 */
import { systemClock } from "@flotilla/base/clock";
import { STOP_SIGNALS } from "@flotilla/base/stop-signals";
import { EXIT_REFUSED, fileErrorText } from "./failure.ts";
import { Output } from "./output.ts";
import { buildProgram, runProgram } from "./program.ts";

const { stdin: input, stdout: output, stderr: errors } = process;
let needsOutput = true;
let endsWithCommand = false;
const refuse = (what: string): void =>
  new Output({ input, output, errors }, systemClock, { isJson: false }).error(what, null);
for (const stream of [output, errors]) {
  stream.on("error", (error: NodeJS.ErrnoException) => {
    if (!needsOutput) return;
    if (error.code === "EPIPE") process.exit(process.exitCode ?? 0);
    // The terminal was closed, which SIGHUP reports too; running work may have to be stopped in order.
    if (error.code === "EIO") return;
    if (stream === output) refuse(`the output cannot be written: ${fileErrorText(error) ?? error.message}`);
    process.exit(EXIT_REFUSED);
  });
}
const world = {
  environment: process.env,
  directory: process.cwd(),
  clock: systemClock,
  streams: { input, output, errors },
  continueWithoutOutput: () => {
    needsOutput = false;
  },
  endWithCommand: () => {
    endsWithCommand = true;
  },
  onStopSignal: (stop: () => void) => {
    let isAsked = false;
    const onSignal = (): void => {
      isAsked = true;
      stop();
    };
    for (const signal of STOP_SIGNALS) process.on(signal, onSignal);
    return () => {
      // The process ends as it was asked to: another signal at that moment must not make a failure of it.
      if (!isAsked) for (const signal of STOP_SIGNALS) process.off(signal, onSignal);
    };
  },
};
process.exitCode = await runProgram((ended) => buildProgram({ world, ended }), process.argv.slice(2));
if (endsWithCommand) process.exit();
