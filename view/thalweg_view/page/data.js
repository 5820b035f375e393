// What a view shows: fetched again when a round or a new state of the cluster arrives, kept on the screen meanwhile.
import { createContext } from "./vendor/preact.js";
import { useContext, useEffect, useRef, useState } from "./vendor/preact-hooks.js";
import { get } from "./api.js";

/** {overview, rounds, round, setRound(round), generation, attempt, revision, now, refused(error)}: `round` is 0 while the
 *  newest round is shown; an answer is good for one `revision`, one that no round changes for one `attempt`. */
export const Shown = createContext(null);

export const useShown = () => useContext(Shown);

/** {data, error, loading} of a GET. `parameters` are compared by value; `ofRound`: whether a round can be asked for;
 *  `good`: what an answer is good for, its revision unless it is said. */
export function useData(path, parameters = {}, ofRound = true, good = undefined) {
  const { round: chosen, revision, refused } = useShown();
  const round = ofRound ? chosen : 0;
  const [state, setState] = useState({ data: null, error: null, loading: true });
  const asked = JSON.stringify([path, parameters, round]);
  const last = useRef("");
  useEffect(() => {
    const abort = new AbortController();
    if (last.current !== asked) setState((before) => ({ ...before, loading: true }));
    last.current = asked;
    get(path, round ? { ...parameters, round } : parameters, abort.signal).then(
      (data) => setState({ data, error: null, loading: false }),
      (error) => {
        if (error.name === "AbortError") return;
        refused(error);
        setState((before) => ({ ...before, error, loading: false }));
      },
    );
    return () => abort.abort();
  }, [asked, good ?? revision]);
  return state;
}
