// Sends the new password with the token of the link. The token is in the fragment (#), so that no log contains it.
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
  const answer = await response.json().catch(() => ({ message: 'The service is not responding. Try again later.' }));
  status.textContent = response.ok ? 'Password changed. You can now log in.' : answer.message;
  form.hidden = response.ok;
});
