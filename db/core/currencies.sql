-- The decimals of currencies. ISO 4217 is the source; CLDR, and with it Intl.NumberFormat, has the decimals that are in
-- use, which differ for PKR, HUF, IDR and others.

create table core.currency (
  code text primary key
    constraint currency_code_check check (code ~ '^[A-Z]{3}$'),
  decimals integer not null
    constraint currency_decimals_check check (decimals between 0 and 4)
);
comment on table core.currency is
  'The currencies of ISO 4217, with the number of decimals that their amounts have. Filled by db/seed.';

create function core.currency_decimals(p_currency text) returns integer language sql stable
  return coalesce((select decimals from core.currency where code = p_currency), 2);
comment on function core.currency_decimals is
  'How many decimals amounts of a currency have. 2 for a currency that ISO 4217 does not list any more.';

create function core.school_currency() returns text language sql stable as $$
  select coalesce((select currency from school), 'USD');
$$;
comment on function core.school_currency is 'The currency of the school.';

create function core.own_currency() returns text language plpgsql stable as $$
begin
  if core.tenant_id() is null then
    return core.price_currency();
  end if;
  return core.school_currency();
end $$;
comment on function core.own_currency is
  'The currency of the amounts of a request: that of the school, or that of the prices of plans for an operator.';

create function core.as_amount(p_amount numeric, p_decimals integer, p_stored numeric default null) returns numeric
  language sql immutable
  return case
    when p_amount = p_stored then p_stored
    else round(p_amount, greatest(p_decimals, min_scale(p_amount)))
  end;
comment on function core.as_amount is
  'An amount as it is stored: with the decimals of its currency (250.5 as 250.50), or with its own if it has more. An '
  'amount that does not change stays as it is stored, so that its record keeps its version.';

create function core.written_amount(p_amount numeric, p_currency text, p_decimals integer) returns text
  language sql immutable
  return p_currency || ' '
    || to_char(p_amount, rtrim('FM999,999,999,990.' || repeat('0', greatest(p_decimals, min_scale(p_amount))), '.'));
comment on function core.written_amount is
  'An amount with its currency as text, with the decimals of the currency, or with its own if it has more: '
  'USD 1,250.50, JPY 1,250.';

create function core.decimals_fault(p_amount numeric, p_currency text, p_decimals integer) returns text
  language sql immutable
  return case
    when min_scale(p_amount) <= p_decimals then null
    when p_decimals = 0 then format('must be a whole number, because %s has no decimals', p_currency)
    else format('must have at most %s decimals, as %s has', p_decimals, p_currency)
  end;
comment on function core.decimals_fault is 'The message for an amount with more decimals than allowed; else null.';
