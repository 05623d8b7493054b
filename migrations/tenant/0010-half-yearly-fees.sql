-- Fee components that are billed per half-year.

alter table fee_component
  drop constraint fee_component_frequency_check,
  add constraint fee_component_frequency_check
    check (frequency in ('one_time', 'monthly', 'quarterly', 'half_yearly', 'term', 'annual'));
