-- The password with which the API logs in through PgBouncer, which refuses the startup option that would switch the role.
alter role school_api password 'school';
