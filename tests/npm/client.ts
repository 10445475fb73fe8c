// What somebody writes against the types that openapi-typescript makes of /openapi.json; the test puts these beside it.
import type { components, operations, paths } from "./coalmine";

type Run = components["schemas"]["Run"];
type Check = components["schemas"]["Check"];
type Alert = components["schemas"]["Alert"];
type Rule = components["schemas"]["RuleSettings"];
type Problem = components["schemas"]["Problem"];
type Answer<Operation extends keyof operations, Status extends keyof operations[Operation]["responses"]> =
  operations[Operation]["responses"][Status] extends { content: { "application/json": infer Body } } ? Body : never;

// True only where both are the same type: any, unknown and never are the same as nothing else.
type Same<One, Other> = (<T>() => T extends One ? 1 : 2) extends <T>() => T extends Other ? 1 : 2 ? true : false;
const same = <One, Other>(_: Same<One, Other>): void => undefined;

same<Answer<"get_run", 200>, Run>(true);
same<Answer<"list_runs", 200>["items"], Run[]>(true);
same<Answer<"get_check", 200>, Check>(true);
same<Answer<"put_check", 201>, Check>(true);
same<Answer<"list_alerts", 200>["items"][number], Alert>(true);
same<paths["/v1/runs/{run_id}"]["get"], operations["get_run"]>(true);

same<Run["status"], "queued" | "running" | "finished" | "partial" | "failed">(true);
same<Run["verdict"], "healthy" | "degraded" | "unknown" | null>(true);
same<Run["health_score"], number | null>(true);
same<Run["degraded_queries"], string[]>(true);
same<Run["measures"][string], number | null>(true);
same<Check["schedule"]["every"], string | null>(true);
same<Check["k"], number>(true);
same<Check["rules"], Rule[]>(true);
same<Rule["severity"], "warning" | "critical">(true);
same<Alert["state"], components["schemas"]["AlertState"]>(true);
same<Alert["transitions"][number]["at"], string>(true);
same<NonNullable<Problem["errors"]>[number]["message"], string>(true);

export function story(run: Run, check: Check, alert: Alert): string {
  const worst: number = Math.min(...Object.values(run.measures).map((value) => value ?? 0));
  const rules: string[] = check.rules.map((rule) => `${rule.kind} ${rule.measure ?? ""}`);
  const turns: string[] = alert.transitions.map((turn) => `${turn.at}: ${turn.reason}`);
  const share: string = run.coverage === null ? "not measured" : run.coverage.toFixed(2);
  return [run.check, share, worst, ...rules, alert.severity, ...turns].join("\n");
}

export function wish(): components["schemas"]["RunRequest"] {
  return { trigger: "update", index_version: "v42", wait_seconds: 60 };
}

// @ts-expect-error no run has this field
export const misspelt = (run: Run) => run.helth_score;
// @ts-expect-error a measure that is not there is null
export const unmeasured = (run: Run): number => run.health_score;
// @ts-expect-error there is no such state
export const nowhere: Alert["state"] = "gone";
// @ts-expect-error nobody starts a run so
export const request: components["schemas"]["RunRequest"] = { trigger: "cron" };
