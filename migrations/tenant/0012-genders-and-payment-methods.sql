-- Genders and payment methods were free text. Requests take only the listed values and their synonyms since then, so a
-- record with another text could not be sent back as it was read, and filters did not find it.

-- Spellings differ in case, spaces, `-` and `_`. These are the synonyms of src/endpoints/parts/gender.ts.
create function listed_gender(p_gender text) returns text language sql immutable strict as $$
  select case
      when spelling = '' then null
      when spelling in ('female', 'f', 'girl', 'woman') then 'female'
      when spelling in ('male', 'm', 'boy', 'man') then 'male'
      when spelling in ('nonbinary', 'nb', 'enby', 'x') then 'non_binary'
      when spelling in ('undisclosed', 'unknown', 'unspecified', 'notspecified', 'notstated', 'prefernottosay')
        then 'undisclosed'
      else 'other'
    end
  from regexp_replace(lower(p_gender), '[\s_-]+', '', 'g') spelling;
$$;

update student
  set gender = listed_gender(gender)
  where gender is distinct from listed_gender(gender);
update teacher
  set gender = listed_gender(gender)
  where gender is distinct from listed_gender(gender);

alter table student add constraint student_gender_check
  check (gender in ('female', 'male', 'non_binary', 'other', 'undisclosed'));
alter table teacher add constraint teacher_gender_check
  check (gender in ('female', 'male', 'non_binary', 'other', 'undisclosed'));

drop function listed_gender(text);

-- The synonyms of src/endpoints/payments.ts. Any other text becomes the method that the analytics counted it as, and is
-- kept in the notes.
with spelled as (
  select
    id, payment_method,
    regexp_replace(lower(payment_method), '[\s_-]+', '', 'g') as spelling
  from payment
  where payment_method not in ('cash', 'check', 'card', 'bank_transfer', 'mobile_money', 'online', 'other')
), listed as (
  select
    id, payment_method,
    case
      when spelling = 'cash' then 'cash'
      when spelling in ('check', 'cheque') then 'check'
      when spelling in ('card', 'creditcard', 'debitcard', 'bankcard', 'credit', 'debit', 'visa', 'mastercard', 'pos')
        then 'card'
      when spelling in ('banktransfer', 'bank', 'transfer', 'wire', 'wiretransfer', 'bankdeposit', 'directdebit', 'eft',
        'ach', 'sepa') then 'bank_transfer'
      when spelling in ('mobilemoney', 'mobile', 'mobilepayment', 'mobilewallet', 'momo', 'mpesa') then 'mobile_money'
      when spelling in ('online', 'onlinepayment', 'internet', 'web', 'wallet', 'upi', 'paypal', 'stripe') then 'online'
      when spelling in ('other', '') then 'other'
    end as exact,
    case
      when spelling ~ 'cash' then 'cash'
      when spelling ~ 'cheque|check' then 'check'
      when spelling ~ 'card|credit|debit' then 'card'
      when spelling ~ 'bank|transfer|wire' then 'bank_transfer'
      when spelling ~ 'mobile' then 'mobile_money'
      when spelling ~ 'online|upi|wallet' then 'online'
      else 'other'
    end as similar
  from spelled
)
update payment p
  set
    payment_method = coalesce(l.exact, l.similar),
    notes = case
      when l.exact is not null then p.notes
      else concat_ws(e'\n', nullif(p.notes, ''), 'Payment method: ' || l.payment_method)
    end
  from listed l
  where p.id = l.id;

alter table payment add constraint payment_payment_method_check
  check (payment_method in ('cash', 'check', 'card', 'bank_transfer', 'mobile_money', 'online', 'other'));
