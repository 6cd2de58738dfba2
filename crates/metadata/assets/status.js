// Keeps the page current: asks the server for the page again and puts the parts that have changed in place of the old
// ones. Without this script everything is there, and the link "Reload" does the same.
"use strict";
(() => {
  const EVERY = 2000; // milliseconds
  const FILTER_REST = 300;
  const FOCUSABLE = "a[href], button, input, [tabindex]";
  const byId = (id) => document.getElementById(id);
  const [pause, connection, said, filter] = ["pause", "connection", "said", "q"].map(byId);
  let paused = false;
  let waiting = 0;
  let asked = 0;

  const figures = (root) => ({
    problems: Number(root.querySelector("#problems").dataset.count),
    newest: Number(root.querySelector("#failures").dataset.newest),
  });

  // Said once each time it gets worse or better, not every two seconds.
  const tell = (before, now) => {
    const parts = [];
    if (now.problems !== before.problems) {
      parts.push(now.problems === 1 ? "1 problem" : `${now.problems} problems`);
    }
    if (now.newest > before.newest) {
      parts.push("a new failed transfer");
    }
    if (parts.length > 0) {
      said.textContent = `Now ${parts.join(", ")}.`;
    }
  };

  // A message that is about to be copied is left alone.
  const isSelected = (part) => {
    const selection = getSelection();
    return !selection.isCollapsed && part.contains(selection.anchorNode);
  };

  // Who works with the keyboard stays where they are: the same link or region gets the focus back.
  const replace = (old, fresh) => {
    if (old.innerHTML === fresh.innerHTML || isSelected(old)) {
      return;
    }
    const focused = old.contains(document.activeElement) ? document.activeElement : null;
    const place = focused && Array.from(old.querySelectorAll(FOCUSABLE)).indexOf(focused);
    const address = focused && focused.getAttribute("href");
    const scrolled = Array.from(old.querySelectorAll(".scroll"), (region) => region.scrollLeft);
    old.innerHTML = fresh.innerHTML;
    for (const name of Object.keys(fresh.dataset)) {
      old.dataset[name] = fresh.dataset[name];
    }
    old.querySelectorAll(".scroll").forEach((region, index) => {
      region.scrollLeft = scrolled[index] ?? 0;
    });
    if (focused) {
      const all = Array.from(old.querySelectorAll(FOCUSABLE));
      const same = all[place]?.getAttribute("href") === address ? all[place] : undefined;
      (same ?? all.find((one) => one.getAttribute("href") === address) ?? all[place])?.focus({ preventScroll: true });
    }
  };

  const refresh = async () => {
    // An answer that was overtaken, for another filter perhaps, is not shown.
    const mine = ++asked;
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" }, cache: "no-store" });
      if (!answer.ok) {
        throw new Error(`status ${answer.status}`);
      }
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (mine !== asked) {
        return;
      }
      const before = figures(document);
      for (const part of document.querySelectorAll("[data-live]")) {
        replace(part, fresh.getElementById(part.id));
      }
      document.title = fresh.title;
      tell(before, figures(document));
      connection.textContent = "";
    } catch {
      // Said once: a text that changes every two seconds would be read out every two seconds.
      if (connection.textContent === "") {
        const at = new Date().toISOString().slice(11, 19);
        connection.textContent = `The metadata server has not answered since ${at} UTC: what stands here is old.`;
      }
    }
  };

  const next = () => {
    clearTimeout(waiting);
    if (!paused && !document.hidden) {
      waiting = setTimeout(turn, EVERY);
    }
  };
  const turn = async () => {
    await refresh();
    next();
  };

  pause.addEventListener("click", () => {
    paused = !paused;
    pause.textContent = paused ? "Resume updates" : "Pause updates";
    paused ? next() : turn();
  });
  pause.hidden = false;
  document.addEventListener("visibilitychange", () => (document.hidden ? next() : !paused && turn()));

  let typing = 0;
  const narrow = () => {
    const address = new URL(location.href);
    filter.value === "" ? address.searchParams.delete("q") : address.searchParams.set("q", filter.value);
    history.replaceState(null, "", address);
    refresh();
  };
  filter.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(narrow, FILTER_REST);
  });
  next();
})();
