// Runs before the first paint, so that the dark theme does not start with a white page.
try {
  const theme = localStorage.getItem("outlast:theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // Without storage the device's setting applies.
}
