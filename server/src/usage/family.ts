/**
 * Events of budgets that are used up.
 */
import type { Context } from "../context.ts";
import type { Family } from "../family.ts";
import { noticeReconciler } from "./notices-loop.ts";

export const usageFamily = (context: Context) =>
  ({ name: "usage", loops: [noticeReconciler(context)] }) satisfies Family;
