/**
 * Measures the tasks of a page. The page's own observer uses wall-clock time, so that a task that waited for the
 * processor counts as long; a trace gives the CPU time. A task is too long only if both say so: then the page is
 * slow, not the machine busy.
 */

import type { Page } from "playwright-core";

export interface LongestTask {
  /** Wall-clock time, from the page's observer: 0 if no task took longer than 50 ms. */
  readonly clockMs: number;
  /** CPU time, of the main threads of pages. */
  readonly processorMs: number;
}

interface TraceEvent {
  readonly name: string;
  readonly ph: string;
  readonly pid: number;
  readonly tid: number;
  readonly tdur?: number;
  readonly args?: { readonly name?: string };
}

/** Starts measuring; the returned function stops it. */
export async function measureTasks(page: Page): Promise<() => Promise<LongestTask>> {
  const session = await page.context().browser()?.newBrowserCDPSession();
  if (session === undefined) throw new Error("the page has no browser");
  const events: TraceEvent[] = [];
  session.on("Tracing.dataCollected", ({ value }) => events.push(...(value as unknown as TraceEvent[])));
  await session.send("Tracing.start", {
    transferMode: "ReportEvents",
    traceConfig: { includedCategories: ["disabled-by-default-devtools.timeline"] },
  });
  await page.evaluate(() => {
    const tasks: number[] = [];
    Object.assign(globalThis, { tasks });
    new PerformanceObserver((list) =>
      tasks.push(...list.getEntries().map(({ duration }) => duration)),
    ).observe({
      type: "longtask",
    });
  });
  return async () => {
    const byClock = await page.evaluate(() => (globalThis as unknown as { tasks: number[] }).tasks);
    const complete = new Promise((resolve) => session.once("Tracing.tracingComplete", resolve));
    await session.send("Tracing.end");
    await complete;
    await session.detach();
    return { clockMs: Math.round(Math.max(0, ...byClock)), processorMs: longestOf(events) };
  };
}

function longestOf(events: readonly TraceEvent[]): number {
  const placeOf = ({ pid, tid }: TraceEvent): string => `${pid} ${tid}`;
  const main = new Set(
    events
      .filter(({ name, args }) => name === "thread_name" && args?.name === "CrRendererMain")
      .map((event) => placeOf(event)),
  );
  let longest = 0;
  for (const event of events)
    if (event.name === "RunTask" && main.has(placeOf(event))) longest = Math.max(longest, event.tdur ?? 0);
  return Math.round(longest / 1_000);
}
