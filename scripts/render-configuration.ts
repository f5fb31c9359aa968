/**
 * Prints docs/configuration.md from the table of settings in contract/src/settings.ts. Runs under `npm run golden`; a
 * test compares what is checked in with what this prints.
 */
import { type Program, type Setting, settings } from "@flotilla/contract/settings";

const PROGRAM_TEXTS: Readonly<Record<Program, string>> = {
  up: "`flotilla up` (`npm start`), which hands them on to the server and the node it runs",
  server: "`flotilla server`",
  node: "`flotilla node`",
  cli: "every other command",
};

/** The whole page. */
export function renderConfiguration(): string {
  const programs = Object.keys(PROGRAM_TEXTS) as Program[];
  return `<!-- Printed by scripts/render-configuration.ts from contract/src/settings.ts; not edited by hand. -->

# Configuration

A setting is given as a flag or as an environment variable. The flag wins over the variable, the variable over the
default; a variable that is set to nothing counts as not set. Each program reads its settings once, when it starts. A bad
value stops the start, and the message shows the setting, the value and what was expected. Secrets have no flag, because
flags are visible in the list of processes.

    FLOTILLA_DATA_DIR=/srv/flotilla ./flotilla up --listen 127.0.0.1:9090

${programs.map(renderProgram).join("\n")}`;
}

function renderProgram(program: Program): string {
  const rows = (Object.values(settings) as Setting<unknown>[])
    .filter((setting) => setting.programs.includes(program))
    .map((setting) => {
      const flag = setting.flag === undefined ? "" : `\`--${setting.flag}\``;
      const meaning = setting.meaning + (setting.isSecret ? " (secret)" : "");
      return `| \`${setting.env}\` | ${flag} | ${[meaning, setting.defaultText].map(escape).join(" | ")} |`;
    });
  return `## ${PROGRAM_TEXTS[program][0]?.toUpperCase()}${PROGRAM_TEXTS[program].slice(1)}

| variable | flag | meaning | default |
|---|---|---|---|
${rows.join("\n")}
`;
}

const escape = (text: string): string => text.replaceAll("|", "\\|");
