import { say } from '../dialogs.tsx';
import { Moment } from '../format.tsx';
import { Conflicts, FormProblem, SaveBar, Text, useForm, useRecordForm } from '../forms.tsx';
import { ask, Failure } from '../http.ts';
import { useLoad } from '../load.ts';
import { Card, Head, Show } from '../parts.tsx';
import { setOperator } from '../session.ts';
import type { Profile as Record } from '../types.ts';

const labels = { first_name: 'First name', last_name: 'Last name', phone: 'Phone' };

function Names({
  answer,
  onSaved,
}: {
  answer: { data: Record; etag: string | undefined };
  onSaved: (answer: { data: Record; etag: string | undefined }) => void;
}) {
  const form = useRecordForm<Record, { first_name: string; last_name: string; phone: string }>({
    path: '/api/auth/profile',
    answer,
    toForm: ({ first_name, last_name, phone }) => ({ first_name, last_name, phone: phone ?? '' }),
    toBody: ({ phone, ...changes }) => ({
      ...changes,
      ...(phone === undefined ? {} : { phone: phone === '' ? null : phone }),
    }),
    labels,
    onSaved,
  });
  const { value, set, error } = form;
  return (
    <form class="stack" ref={form.ref} onSubmit={form.submit} noValidate>
      <Card title="You">
        <div class="form">
          <FormProblem form={form} fields={Object.keys(labels)} />
          <Conflicts conflicts={form.conflicts} />
          <div class="pair">
            <Text
              label="First name"
              name="first_name"
              isRequired
              value={value.first_name}
              error={error('first_name')}
              onChange={(first_name) => set({ first_name })}
              input={{ autocomplete: 'given-name' }}
            />
            <Text
              label="Last name"
              name="last_name"
              isRequired
              value={value.last_name}
              error={error('last_name')}
              onChange={(last_name) => set({ last_name })}
              input={{ autocomplete: 'family-name' }}
            />
          </div>
          <Text
            label="Phone"
            name="phone"
            value={value.phone}
            error={error('phone')}
            onChange={(phone) => set({ phone })}
            input={{ autocomplete: 'tel' }}
          />
          <dl class="facts">
            <dt>E-mail</dt>
            <dd>{answer.data.email}</dd>
            <dt>Last log-in</dt>
            <dd>{answer.data.last_login_at ? <Moment at={answer.data.last_login_at} form="time" /> : 'never'}</dd>
          </dl>
        </div>
      </Card>
      <SaveBar form={form} />
    </form>
  );
}

const noPassword = { current_password: '', password: '' };

function Password() {
  const form = useForm(noPassword, async (body) => {
    try {
      await ask('POST', '/api/auth/password/change', { body });
    } catch (thrown) {
      if (!(thrown instanceof Failure) || thrown.code !== 'invalid_credentials') throw thrown;
      throw new Failure(400, 'validation_error', 'Your password is wrong.', {
        details: [{ path: 'current_password', message: 'is wrong' }],
      });
    }
    form.reset(noPassword);
    say('Your password is changed. Your other sessions have ended.');
  });
  const { value, set, error } = form;
  return (
    <form ref={form.ref} onSubmit={form.submit} noValidate>
      <Card title="Password">
        <div class="form">
          <FormProblem form={form} fields={Object.keys(noPassword)} />
          <Text
            label="Current password"
            name="current_password"
            isRequired
            value={value.current_password}
            error={error('current_password')}
            onChange={(current_password) => set({ current_password })}
            input={{ type: 'password', autocomplete: 'current-password' }}
          />
          <Text
            label="New password"
            name="password"
            isRequired
            hint="8 characters or more. Your other sessions end."
            value={value.password}
            error={error('password')}
            onChange={(password) => set({ password })}
            input={{ type: 'password', autocomplete: 'new-password' }}
          />
          <div class="form-foot">
            <button class="button" disabled={form.isBusy || value.password === ''}>
              {form.isBusy ? 'Changing…' : 'Change password'}
            </button>
          </div>
        </div>
      </Card>
    </form>
  );
}

export function Profile() {
  const profile = useLoad('profile', (signal) => ask<Record>('GET', '/api/auth/profile', { signal }), {
    isFresh: true,
  });
  return (
    <>
      <Head title="Your profile" />
      <div class="narrow stack">
        <Show what={profile}>
          {(answer) => (
            <Names
              answer={answer}
              onSaved={(saved) => {
                say('Saved.');
                setOperator(saved.data);
                profile.set({ ...answer, ...saved });
              }}
            />
          )}
        </Show>
        <Password />
      </div>
    </>
  );
}
