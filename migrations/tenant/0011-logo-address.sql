-- A logo that is at another address, instead of an uploaded file.

alter table school add column logo_address text
  constraint school_logo_address_check check (logo_address ~ '^https://' and length(logo_address) <= 2000);
comment on column school.logo_address is 
  'The https address of a logo that is not stored here. The service never reads it.';
