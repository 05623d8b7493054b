import { showToast } from '../parts/dialogs.tsx';
import { Timestamp } from '../parts/format.tsx';
import { TextField } from '../parts/fields.tsx';
import { Conflicts, FormError, SaveBar, useForm, useRecordForm } from '../parts/forms.tsx';
import { request } from '../data/api.ts';
import { Failure } from '../data/http.ts';
import { useLoad } from '../data/load.ts';
import { Card, PageHeader, AsyncContent, Fact } from '../parts/components.tsx';
import { setOperator } from '../data/session.ts';
import type { Profile as ProfileData } from '../types.ts';
import { SessionsCard } from './sessions-card.tsx';
import { ShortcutsCard } from './shortcuts-card.tsx';
import { TwoFactorCard } from './two-factor-card.tsx';

const labels = { first_name: 'First name', last_name: 'Last name', phone: 'Phone' };

function ProfileForm({
  response,
  onSaved,
}: {
  response: { data: ProfileData; etag: string | undefined };
  onSaved: (response: { data: ProfileData; etag: string | undefined }) => void;
}) {
  const form = useRecordForm<ProfileData, { first_name: string; last_name: string; phone: string }>({
    path: '/api/auth/profile',
    response,
    toForm: ({ first_name, last_name, phone }) => ({ first_name, last_name, phone: phone ?? '' }),
    toBody: ({ phone, ...changes }) => ({
      ...changes,
      ...(phone === undefined ? {} : { phone: phone === '' ? null : phone }),
    }),
    labels,
    onSaved,
  });
  return (
    <form class="stack" ref={form.ref} onSubmit={form.submit} noValidate>
      <Card title="Personal details">
        <div class="form">
          <FormError form={form} fields={Object.keys(labels)} />
          <Conflicts conflicts={form.conflicts} />
          <div class="pair">
            <TextField
              label="First name"
              {...form.field('first_name')}
              isRequired
              input={{ autocomplete: 'given-name' }}
            />
            <TextField label="Last name" {...form.field('last_name')} input={{ autocomplete: 'family-name' }} />
          </div>
          <TextField label="Phone" {...form.field('phone')} input={{ autocomplete: 'tel' }} />
          <dl class="facts">
            <Fact label="Email">{response.data.email}</Fact>
            <Fact label="Last login">
              {response.data.last_login_at ? <Timestamp at={response.data.last_login_at} format="time" /> : 'never'}
            </Fact>
          </dl>
        </div>
      </Card>
      <SaveBar form={form} />
    </form>
  );
}

const emptyPasswords = { current_password: '', password: '' };

function PasswordForm() {
  const form = useForm(emptyPasswords, async (body) => {
    try {
      await request('POST', '/api/auth/password/change', { body });
    } catch (thrown) {
      if (!(thrown instanceof Failure) || thrown.code !== 'invalid_credentials') throw thrown;
      throw new Failure(400, 'validation_error', 'The current password is incorrect.', {
        details: [{ path: 'current_password', message: 'is incorrect' }],
      });
    }
    form.reset(emptyPasswords);
    showToast('Password changed. You have been logged out everywhere else.');
  });
  return (
    <form ref={form.ref} onSubmit={form.submit} noValidate>
      <Card title="Password">
        <div class="form">
          <FormError form={form} fields={Object.keys(emptyPasswords)} />
          <TextField
            label="Current password"
            {...form.field('current_password')}
            isRequired
            input={{ type: 'password', autocomplete: 'current-password' }}
          />
          <TextField
            label="New password"
            {...form.field('password')}
            isRequired
            hint="At least 8 characters. You will be logged out everywhere else."
            input={{ type: 'password', autocomplete: 'new-password' }}
          />
          <div class="form-foot">
            <button class="button" disabled={form.isBusy || form.value.password === ''}>
              {form.isBusy ? 'Changing…' : 'Change password'}
            </button>
          </div>
        </div>
      </Card>
    </form>
  );
}

export function Profile() {
  const profile = useLoad('profile', (signal) => request<ProfileData>('GET', '/api/auth/profile', { signal }), {
    isUncached: true,
  });
  return (
    <>
      <PageHeader title="Your profile" />
      <div class="narrow stack">
        <AsyncContent state={profile}>
          {(response) => (
            <ProfileForm
              response={response}
              onSaved={(saved) => {
                showToast('Profile saved.');
                setOperator(saved.data);
                profile.set({ ...response, ...saved });
              }}
            />
          )}
        </AsyncContent>
        <PasswordForm />
        <TwoFactorCard />
        <SessionsCard />
        <ShortcutsCard />
      </div>
    </>
  );
}
