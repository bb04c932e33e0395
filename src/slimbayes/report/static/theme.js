// Runs before anything is drawn, so that a remembered theme does not flash. Storage may be refused: then nothing is remembered.
document.documentElement.classList.add("scripted");
try {
  const theme = localStorage.getItem("slimbayes-theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch (refused) {}
