import { useId } from 'preact/hooks';
import { featureName, featureNames, formatNumber, formatPrice } from '../../parts/format.tsx';
import { SelectField, TextField } from '../../parts/fields.tsx';
import { planFeatures } from '../../data/plans.ts';
import type { Plan } from '../../types.ts';

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
      <TextField
        label="Time zone"
        name="time_zone"
        isRequired
        hint="Determines when a day starts and ends at the school."
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
    <SelectField
      label="Plan"
      name="plan_id"
      isRequired
      options={plans.map((plan) => [String(plan.id), `${plan.name}, ${formatPrice(plan)} per month`] as const)}
      hint={
        chosen &&
        `Up to ${formatNumber(chosen.max_students)} students and ${formatNumber(chosen.max_teachers)} teachers. ` +
          `${planFeatures(chosen)}.`
      }
      {...props}
    />
  );
}

type Flags = Record<string, boolean>;

/** For each feature: use the setting of the plan, or turn it on or off for this school only. */
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
        const choose = (isOn: boolean | undefined) => {
          const others = Object.fromEntries(Object.entries(flags).filter(([other]) => other !== name));
          onChange(isOn === undefined ? others : { ...others, [name]: isOn });
        };
        const choices = [
          [undefined, `Plan default: ${isInPlan ? 'on' : 'off'}`],
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
