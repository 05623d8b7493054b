// Sends the new password with the token of the link. The token stands behind #, so that it reaches no log.
const form = document.querySelector('form');
const status = document.querySelector('[role=status]');

form.addEventListener('submit', async (event) => {
  event.preventDefault();
  const token = new URLSearchParams(location.hash.slice(1)).get('token') ?? '';
  const response = await fetch('/api/auth/password/reset', {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({ token, password: form.password.value }),
  });
  const answer = await response.json().catch(() => ({ message: 'The service does not answer.' }));
  status.textContent = response.ok ? 'Done. You can log in with your new password.' : answer.message;
  form.hidden = response.ok;
});
