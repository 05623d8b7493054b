--! Previous: sha1:9bc49eb7257186d7161e7c1248611361be305a3e
--! Hash: sha1:f2e0087fb80e4b6cd5c4ca095e8c3ac1df30e4a8
--! Message: Search forms, normalized texts, final subscriptions

-- The characters of Unicode's Default_Ignorable_Code_Point.
create function public.without_invisible(p_text text) returns text
  language sql immutable strict parallel safe
  return regexp_replace(
    p_text,
    '[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164'
    || '\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]',
    '', 'g');
comment on function public.without_invisible is
  'A text without the characters that nobody sees, such as a zero-width space or a soft hyphen.';

-- platform.search_normal cannot change: indexes for sorting have its results. It stays the order of names, and this is
-- what a search compares. In public, because the grants of an earlier release, which a rollback installs again, would
-- revoke a function in platform, and then no row with a column of this function could be written.
create function public.search_form(p_text text) returns text
  language plpgsql immutable strict parallel safe as $$
declare
  v_text text;
begin
  if octet_length(p_text) = length(p_text) then
    return lower(p_text);
  end if;
  -- Invisible characters first: unaccent writes a soft hyphen as a hyphen.
  v_text := lower(public.unaccent(
    'public.unaccent'::regdictionary, public.without_invisible(normalize(p_text, nfkc))));
  if octet_length(v_text) = length(v_text) then
    return v_text;
  end if;
  -- Without combining marks, Hebrew points, Arabic vowel signs and the tatweel.
  v_text := regexp_replace(
    v_text,
    '[\u0300-\u036f\u0483-\u0487\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u0640\u064b-\u065f'
    || '\u0670\u06d6-\u06dc\u06df-\u06e8\u06ea-\u06ed\u08d3-\u08e1\u08e3-\u08ff\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff'
    || '\ufe20-\ufe2f]',
    '', 'g');
  -- One letter for the variants of alef, of yeh (also on a hamza, and the Persian one), of waw, of heh and of kaf; for
  -- the final forms of Hebrew letters and of sigma; ASCII for geresh, gershayim and maqaf, and for both sets of digits.
  return translate(
    v_text,
    e'\u0622\u0623\u0625\u0671' || e'\u0649\u0626\u06cc' || e'\u0624' || e'\u0629\u06c1\u06c3' || e'\u06a9'
      || e'\u05da\u05dd\u05df\u05e3\u05e5' || e'\u03c2' || e'\u05f3\u05f4\u05be'
      || e'\u0660\u0661\u0662\u0663\u0664\u0665\u0666\u0667\u0668\u0669'
      || e'\u06f0\u06f1\u06f2\u06f3\u06f4\u06f5\u06f6\u06f7\u06f8\u06f9',
    e'\u0627\u0627\u0627\u0627' || e'\u064a\u064a\u064a' || e'\u0648' || e'\u0647\u0647\u0647' || e'\u0643'
      || e'\u05db\u05de\u05e0\u05e4\u05e6' || e'\u03c3' || e'''"-' || '0123456789' || '0123456789');
end $$;
comment on function public.search_form is
  'The form of a text in which searches compare it: lower case, without accents, vowel points and invisible '
  'characters, with one letter for the usual variants of Arabic and Hebrew letters.';
comment on function platform.search_normal is 'Normalizes text for sorting: lower case, without accents.';

-- The service now stores texts in the normalization form NFC. A row whose new text would violate a constraint, such as
-- a name that exists already, stays as it is.
do $$
declare
  v_column record;
  v_id bigint;
begin
  for v_column in
    select *
    from (values
      ('tenant', 'name'), ('user_account', 'first_name'), ('user_account', 'last_name'), ('plan', 'name'),
      ('notification_template', 'subject'), ('notification_template', 'body'), ('saved_question', 'name'),
      ('saved_question', 'description')) c (table_name, name)
  loop
    for v_id in
      execute format('select id from platform.%I where %I is not normalized', v_column.table_name, v_column.name)
    loop
      begin
        execute format(
          'update platform.%1$I set %2$I = normalize(%2$I) where id = $1', v_column.table_name, v_column.name)
          using v_id;
      exception when unique_violation or check_violation then
        null;
      end;
    end loop;
  end loop;
end $$;

-- Plans that only operators assign, and subscriptions that only operators open again.
alter table platform.plan add column is_public boolean not null default true;
comment on column platform.plan.is_public is 'Whether schools can choose the plan. Operators can assign every plan.';
alter table platform.subscription add column is_final boolean not null default false;
comment on column platform.subscription.is_final is
  'True: an operator cancelled the subscription for good, and the school cannot choose a plan.';
