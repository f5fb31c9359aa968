/**
 * The signals that ask a program to stop.
 *
 * Always: SIGHUP is none of them for a program that was started with `nohup`. Node resets what that has set,
 * so `./flotilla` records it in the environment, and a program that imports this ignores the signal.
 */

const IGNORES_HANGUP = process.env["FLOTILLA_IGNORES_HANGUP"] === "1";
if (IGNORES_HANGUP) process.on("SIGHUP", () => {});

export const STOP_SIGNALS: readonly NodeJS.Signals[] = IGNORES_HANGUP
  ? ["SIGINT", "SIGTERM"]
  : ["SIGINT", "SIGTERM", "SIGHUP"];
