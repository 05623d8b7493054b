-- The bytes of files.

-- p_range: {start, end, of}, ends included. Without start, the last `end` bytes. Beyond the end of the file: no bytes.
-- With the digest of another file in `of`: the whole file.
create function core.file_content(p_file_id bigint, p_range jsonb) returns bytea language sql stable as $$
  select case
      when p_range is null or p_range ->> 'of' <> digest then content
      else substring(content from part.first + 1 for greatest(part.last - part.first + 1, 0))
    end
  from file,
    lateral (select (p_range ->> 'start')::bigint as start, (p_range ->> 'end')::bigint as "end") requested,
    lateral (select
      least(coalesce(requested.start, greatest(size - requested."end", 0)), size)::integer as first,
      case when requested.start is null then size - 1
        else least(coalesce(requested."end", size), size - 1)::integer end as last) part
  where id = p_file_id;
$$;
comment on function core.file_content is 'The bytes of a file, or of the requested range.';
