import { useId } from 'preact/hooks';
import { amount, featureName, featureNames, number } from './format.tsx';
import { Select, Text } from './forms.tsx';
import { ask } from './http.ts';
import { useLoad } from './load.ts';
import type { Plan } from './types.ts';

/** The plans, by price. */
export const usePlans = () =>
  useLoad(
    'plans',
    async (signal) => (await ask<Plan[]>('GET', '/api/platform/plans', { query: { pageSize: 100 }, signal })).data,
  );

const zones = Intl.supportedValuesOf('timeZone');

interface FieldProps {
  value: string;
  onChange: (value: string) => void;
  error: string | undefined;
}

export function ZoneField(props: FieldProps) {
  const list = useId();
  return (
    <>
      <Text
        label="Time zone"
        name="time_zone"
        isRequired
        hint="The school’s days begin and end by it."
        input={{ list, autocomplete: 'off', spellcheck: false }}
        {...props}
      />
      <datalist id={list}>
        {zones.map((zone) => (
          <option key={zone} value={zone} />
        ))}
      </datalist>
    </>
  );
}

export function PlanField({ plans, ...props }: FieldProps & { plans: Plan[] }) {
  const chosen = plans.find(({ id }) => String(id) === props.value);
  return (
    <Select
      label="Plan"
      name="plan_id"
      isRequired
      options={plans.map(
        ({ id, name, price_monthly }) => [String(id), `${name}, ${amount(price_monthly)} a month`] as const,
      )}
      hint={
        chosen &&
        `Up to ${number(chosen.max_students)} students and ${number(chosen.max_teachers)} teachers. ${chosen.features_json.features.map(featureName).join(', ') || 'No features'}.`
      }
      {...props}
    />
  );
}

type Flags = Record<string, boolean>;

/** Features as the plan has them, or on, or off for this school alone. */
export function FeatureFields({
  flags,
  plan,
  onChange,
  isDisabled = false,
}: {
  flags: Flags;
  plan: Plan | undefined;
  onChange: (flags: Flags) => void;
  isDisabled?: boolean;
}) {
  const group = useId();
  return (
    <div class="features">
      {featureNames.map((name) => {
        const isInPlan = plan?.features_json.features.includes(name) ?? false;
        const choose = (to: boolean | undefined) => {
          const others = Object.fromEntries(Object.entries(flags).filter(([other]) => other !== name));
          onChange(to === undefined ? others : { ...others, [name]: to });
        };
        const choices = [
          [undefined, `As in plan: ${isInPlan ? 'on' : 'off'}`],
          [true, 'On'],
          [false, 'Off'],
        ] as const;
        return (
          <div key={name} class="feature" role="radiogroup" aria-label={featureName(name)}>
            <span>{featureName(name)}</span>
            <div class="segments">
              {choices.map(([value, label]) => (
                <label key={label}>
                  <input
                    type="radio"
                    name={`${group}-${name}`}
                    checked={flags[name] === value}
                    disabled={isDisabled}
                    onChange={() => choose(value)}
                  />
                  <span>{label}</span>
                </label>
              ))}
            </div>
          </div>
        );
      })}
    </div>
  );
}
