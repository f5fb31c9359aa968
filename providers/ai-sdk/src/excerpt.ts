/**
 * The beginning and the end of text of any length. Pure.
 *
 * Always: no more than the limit is held, and twice of it at a moment.
 */
export class Excerpt {
  readonly #half: number;
  readonly #decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  #head = "";
  #tail = "";
  #left = 0;

  /** At most so many characters are shown, and a line that says how many are not. */
  constructor(characters: number) {
    this.#half = Math.max(1, Math.floor(characters / 2));
  }

  /** Bytes that are not UTF-8 become replacement characters. */
  add(bytes: Uint8Array): void {
    this.#keep(this.#decoder.decode(bytes, { stream: true }));
  }

  show(): string {
    this.#keep(this.#decoder.decode());
    if (this.#left === 0) return this.#head + this.#tail;
    return `${this.#head}\n[${this.#left} characters are left out]\n${this.#tail}`;
  }

  #keep(text: string): void {
    const room = this.#half - this.#head.length;
    this.#head += text.slice(0, room);
    this.#tail += text.slice(room);
    const over = this.#tail.length - this.#half;
    if (over <= 0) return;
    this.#left += over;
    this.#tail = this.#tail.slice(over);
  }
}
