// The flow: from pods, by workload or otherwise, to groups of nodes to nodes. Width is pods, colour is price.
import { useMemo, useState } from "./vendor/preact-hooks.js";
import { useData, useShown } from "./data.js";
import { layFlow } from "./flow-layout.js";
import { Picture, widthOf } from "./flow-picture.js";
import { clock, compact } from "./format.js";
import { html } from "./html.js";
import { Network } from "./network.js";
import { Choice, Empty, Problem, Scale, useSize, useTheme } from "./parts.js";
import { link } from "./route.js";

const SOURCES = [["workload", "workload"], ["class", "requests"], ["policy", "policy"], ["queue", "queue"], ["priority", "priority"], ["namespace", "namespace"]];
const GROUPINGS = [["zone", "zone"], ["rack", "rack"]];

/** Policies that are offered; the address finds the network of any. */
const SOME = 100;

/** The flow of a round, or the network of the policy that the address names. */
export function Flow({ query }) {
  const policy = query.get("network") ?? "";
  const { data } = useData("policies", {}, false);
  const drawn = (data?.policies ?? []).filter((each) => each.draws && each.name !== policy).slice(0, SOME).map((each) => each.name);
  const names = policy ? [policy, ...drawn].toSorted() : drawn;
  const choose = (name) => {
    window.location.hash = link("flow") + (name ? `?network=${encodeURIComponent(name)}` : "");
  };
  const choice = names.length ? html`
    <${Choice} title="Show" value=${policy} choose=${choose}
      choices=${[["", "the round"], ...names.map((each) => [each, `network of ${each}`])]} />` : null;
  return policy ? html`<${Network} key=${policy} policy=${policy} choice=${choice} />` : html`<${RoundFlow} choice=${choice} />`;
}

function RoundFlow({ choice }) {
  const [of, setOf] = useState("workload");
  const [by, setBy] = useState("zone");
  const { round, rounds } = useShown();
  const earlier = round ? 0 : lastThatPlaced(rounds);
  const { data, error, loading } = useData("flow", earlier ? { of, by, round: earlier } : { of, by });
  const [box, size] = useSize();
  const theme = useTheme();
  const laid = useMemo(() => (data && size.width ? layFlow(data, size.width, size.height, widthOf) : null), [data, size]);
  return html`
    <div class="tools">
      <h1>Flow</h1>
      ${choice}
      <${Choice} title="Pods by" value=${of} choices=${SOURCES} choose=${setOf} />
      <${Choice} title="Nodes by" value=${by} choices=${GROUPINGS} choose=${setBy} />
      ${laid && !laid.empty ? html`
        <${Scale} title="price" from=${compact(laid.prices[0])} to=${compact(laid.prices[1])} />
        <span class="scale"><span class="swatch left" aria-hidden="true"></span> left out</span>
        <span class="quiet">width: pods</span>` : null}
    </div>
    ${earlier ? html`
      <p class="quiet" role="status">Round ${earlier} at ${clock(rounds.time[rounds.number.indexOf(earlier)])}: the last that placed a pod. The newest placed none.</p>` : null}
    <${Problem} error=${error} loading=${loading} data=${data} />
    <div class="flow" ref=${box}>
      ${laid?.empty ? html`<${Empty}>No pod was planned in this round.<//>` : null}
      ${laid && !laid.empty ? html`<${Picture} laid=${laid} size=${size} theme=${theme} />` : null}
    </div>`;
}

/** Number of the last round that placed a pod, where the newest placed none; 0: the newest did, or none is kept. */
function lastThatPlaced(rounds) {
  const newest = (rounds?.number.length ?? 0) - 1;
  if (newest < 0 || rounds.placed[newest]) return 0;
  for (let at = newest - 1; at >= 0 && rounds.whole[at]; at -= 1) if (rounds.placed[at]) return rounds.number[at];
  return 0;
}
