// Light, dark, or as the system has it: remembered in this browser, and put in force before anything is drawn.
"use strict";
(() => {
  const KEY = "moonrail-theme";
  const THEMES = ["system", "light", "dark"];
  // Browsers may forbid storage, for pages from the disk too.
  const remembered = () => {
    try {
      return localStorage.getItem(KEY);
    } catch {
      return null;
    }
  };
  let theme = THEMES.includes(remembered()) ? remembered() : "system";
  const apply = () => {
    document.documentElement.dataset.theme = theme;
  };
  apply();
  document.addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    const name = () => {
      button.textContent = `Theme: ${theme}`;
    };
    button.addEventListener("click", () => {
      theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
      try {
        localStorage.setItem(KEY, theme);
      } catch {
        // It holds for this page only.
      }
      apply();
      name();
    });
    name();
    button.hidden = false;
  });
})();
