-- The passwords of userlist.txt. A login through PgBouncer needs one, because PgBouncer refuses the startup option that would
-- switch the role.
alter role school_api password 'school';
alter role school_worker password 'school';
alter role school_graphql password 'school';
