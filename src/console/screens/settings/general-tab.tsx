import { type ApiResponse, request } from '../../data/api.ts';
import { AsyncContent, Card } from '../../parts/components.tsx';
import { showToast } from '../../parts/dialogs.tsx';
import { currencyName } from '../../parts/format.tsx';
import { SelectField } from '../../parts/fields.tsx';
import { Conflicts, FormError, SaveBar, useRecordForm } from '../../parts/forms.tsx';
import { useLoad } from '../../data/load.ts';
import { settingsPath } from '../../data/plans.ts';
import type { PlatformSettings, SavedPlatformSettings } from '../../types.ts';

const labels = { currency: 'Currency of prices' };
const toForm = ({ currency }: PlatformSettings) => ({ currency });
const toBody = (changes: Partial<ReturnType<typeof toForm>>) => changes;

/** The currencies to choose from, with the present one, which may be one that the browser does not list. */
const currenciesWith = (present: string) =>
  [...new Set([...Intl.supportedValuesOf('currency'), present])]
    .sort()
    .map((code) => [code, currencyName(code)] as const);

interface SettingsFormProps {
  response: { data: PlatformSettings; etag: string | undefined };
  onSaved: (response: ApiResponse<SavedPlatformSettings>) => void;
}

function SettingsForm({ response, onSaved }: SettingsFormProps) {
  const form = useRecordForm({ path: settingsPath, response, toForm, toBody, labels, onSaved });
  return (
    <form class="stack" ref={form.ref} onSubmit={form.submit} noValidate>
      <FormError form={form} fields={Object.keys(labels)} />
      <Conflicts conflicts={form.conflicts} />
      <Card title="Prices">
        <SelectField
          {...form.field('currency')}
          label={labels.currency}
          isRequired
          hint="All plans have prices in this currency. Changing it does not convert them."
          options={currenciesWith(response.data.currency)}
        />
      </Card>
      <SaveBar form={form} />
    </form>
  );
}

/** The settings of the platform that belong to no other tab. */
export function GeneralTab() {
  const settings = useLoad(
    'platform settings',
    (signal) => request<PlatformSettings>('GET', settingsPath, { signal }),
    { isUncached: true },
  );
  return (
    <div class="narrow">
      <AsyncContent state={settings}>
        {(response) => (
          <SettingsForm
            response={response}
            onSaved={(saved) => {
              showToast(['Settings saved.', ...(saved.data.warnings ?? []).map(({ message }) => message)].join(' '));
              settings.set(saved);
            }}
          />
        )}
      </AsyncContent>
    </div>
  );
}
