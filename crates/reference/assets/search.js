// Narrows the list while words are typed: a record stays that has all of them. Without this script the form asks the server.
"use strict";
const box = document.getElementById("q");
const list = document.getElementById("records");
// A list that the server has narrowed already is left alone: Enter asks it again.
if (box && list && "complete" in list.dataset) {
  const items = Array.from(list.children, (item) => ({ item, words: item.dataset.words }));
  const count = document.getElementById("count");
  const none = document.getElementById("none");
  const narrow = () => {
    const asked = box.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const { item, words } of items) {
      item.hidden = !asked.every((word) => words.includes(word));
      shown += item.hidden ? 0 : 1;
    }
    count.textContent = `${shown} of ${items.length} records`;
    none.hidden = shown > 0;
  };
  box.addEventListener("input", narrow);
  // "/" goes to the search, as in most documentation.
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && document.activeElement !== box && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      box.focus();
    }
  });
  // An exported site has no server to ask: the words come from the address.
  const given = new URLSearchParams(location.search).get("q");
  if (given) {
    box.value = given;
    narrow();
  }
}
