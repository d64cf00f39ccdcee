// Before the first paint, so that nobody who chose dark is shown a white page.
try {
  const theme = localStorage.getItem("outlast:theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // Without storage the device decides.
}
