// The address behind "#": which view, and what it shows. The token is never part of an address that stays.
import { useEffect, useState } from "./vendor/preact-hooks.js";

export const link = (...parts) => `#/${parts.map(encodeURIComponent).join("/")}`;

function read() {
  const [path, query = ""] = window.location.hash.replace(/^#\/?/, "").split("?");
  const parts = path.split("/").filter(Boolean);
  try {
    return { parts: parts.map(decodeURIComponent), query: new URLSearchParams(query) };
  } catch {
    return { parts: [path], query: new URLSearchParams() }; // of no view
  }
}

export function useRoute() {
  const [route, setRoute] = useState(read);
  useEffect(() => {
    const changed = () => setRoute(read());
    window.addEventListener("hashchange", changed);
    return () => window.removeEventListener("hashchange", changed);
  }, []);
  return route;
}
