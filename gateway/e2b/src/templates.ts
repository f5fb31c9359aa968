/**
 * Which image a template is. Pure.
 *
 * A template is an image by its name. Two names are E2B's own; their images are made on this host.
 * Sandboxes have the size that machines have by default: for that one nodes prepare VMs.
 */
const KINDS: Readonly<Record<string, string>> = {
  base: "e2b-base",
  "code-interpreter-v1": "e2b-code-interpreter",
};

/** What scripts/make-local-image makes for the template; null: it is not one of E2B's own. */
export const kindOf = (template: string): string | null => KINDS[template.replace(/:default$/, "")] ?? null;

export function imageOf(template: string): string {
  const kind = kindOf(template);
  return kind === null ? template : `local/${kind}`;
}
