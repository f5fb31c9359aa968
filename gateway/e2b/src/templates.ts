/**
 * Which image a template is. Pure.
 *
 * A template is an image by its name. Two names are E2B's own; their images are made on this host.
 * Sandboxes have the size that machines have by default: for that one nodes prepare VMs.
 */
const BASE = "base";
const CODE_INTERPRETER = "code-interpreter-v1";

const IMAGES: Readonly<Record<string, string>> = {
  [BASE]: "local/e2b-base",
  [CODE_INTERPRETER]: "local/e2b-code-interpreter",
};

export const imageOf = (template: string): string => IMAGES[template.replace(/:default$/, "")] ?? template;
