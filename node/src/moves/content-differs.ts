/**
 * The content of a file that arrived is not the sender's. What had arrived of it is not used.
 */
export class ContentDiffers extends Error {}
