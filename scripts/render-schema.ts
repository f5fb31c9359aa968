/**
 * Generates server/src/db/schema.sql from the catalog of a migrated database: the result of all migrations.
 *
 * Always: the same schema gives the same text. Tables, indexes, functions with views, and triggers are in the order
 * of their names, the columns of a table in the table's order. The page is for readers and reviews: the migrations
 * make databases.
 */
import type pg from "pg";

const HEAD = `-- The schema that the migrations make, printed by scripts/schema.ts from a database; not edited by hand, and applied by
-- nothing. To change it, add a migration (docs/adding-a-table.md) and run \`node scripts/schema.ts\`.`;

const COLUMNS = `
  SELECT c.relname AS "table", a.attname AS name, format_type(a.atttypid, a.atttypmod) AS type,
    a.attnotnull AS "isRequired", a.attidentity AS identity, a.attgenerated AS generated,
    pg_get_expr(d.adbin, d.adrelid) AS value,
    col_description(c.oid, a.attnum) AS comment, obj_description(c.oid, 'pg_class') AS "tableComment"
  FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
  WHERE c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace
  ORDER BY c.relname COLLATE "C", a.attnum`;

// NOT NULL is part of the column; older servers do not list it as a constraint.
const CONSTRAINTS = `
  SELECT conrelid::regclass::text AS "table", format('CONSTRAINT %I %s', conname, pg_get_constraintdef(oid)) AS text
  FROM pg_constraint WHERE connamespace = 'public'::regnamespace AND conrelid <> 0 AND contype <> 'n'
  ORDER BY contype DESC, conname COLLATE "C"`;

// An extension is listed by its name, without its objects.
const THE_REST = `
  SELECT text FROM (
    SELECT format('CREATE EXTENSION %I;', extname) AS text, 0 AS kind, extname::text AS name FROM pg_extension
    WHERE extname <> 'plpgsql'
    UNION ALL
    SELECT format('%s;', indexdef), 1, indexname::text FROM pg_indexes i
    WHERE schemaname = 'public' AND NOT EXISTS (SELECT FROM pg_constraint WHERE conname = i.indexname)
    UNION ALL SELECT format('%s;', rtrim(pg_get_functiondef(oid), E'\\n')), 2, proname
    FROM pg_proc p WHERE pronamespace = 'public'::regnamespace
      AND NOT EXISTS (SELECT FROM pg_depend WHERE classid = 'pg_proc'::regclass AND objid = p.oid AND deptype = 'e')
    UNION ALL SELECT format(E'CREATE VIEW %I AS\\n%s', viewname, definition), 2, viewname::text
    FROM pg_views WHERE schemaname = 'public'
    UNION ALL SELECT format('%s;', pg_get_triggerdef(oid)), 3, tgname FROM pg_trigger WHERE NOT tgisinternal) AS rest
  ORDER BY kind, name COLLATE "C", text COLLATE "C"`;

interface Column {
  readonly table: string;
  readonly name: string;
  readonly type: string;
  readonly isRequired: boolean;
  readonly identity: string;
  readonly generated: string;
  readonly value: string | null;
  readonly comment: string | null;
  readonly tableComment: string | null;
}

/** The whole text, from the client's database. */
export async function renderSchema(client: pg.Client): Promise<string> {
  const { rows: columns } = await client.query<Column>(COLUMNS);
  const { rows: constraints } = await client.query<{ table: string; text: string }>(CONSTRAINTS);
  const { rows: rest } = await client.query<{ text: string }>(THE_REST);
  const tables = [...Map.groupBy(columns, ({ table }) => table)].map(([table, own]) => {
    const limits = constraints.filter((each) => each.table === table).map(({ text }) => `  ${text}`);
    return tableText(table, own, limits);
  });
  return `${[HEAD, ...tables, ...rest.map(({ text }) => text)].join("\n\n")}\n`;
}

function tableText(table: string, columns: readonly Column[], constraints: readonly string[]): string {
  const head = columns[0]?.tableComment;
  const lines = [...columns.map(columnText), ...constraints.map((text) => `${text},`)];
  const body = lines.join("\n").replace(/,$/, "");
  return `${head ? `-- ${head}\n` : ""}CREATE TABLE ${table} (\n${body}\n);`;
}

/** A column with a trailing comma, under its comment. */
function columnText(column: Column): string {
  const parts = [column.name, column.type];
  if (column.generated !== "") parts.push(`GENERATED ALWAYS AS (${column.value}) STORED`);
  else if (column.identity !== "")
    parts.push(`GENERATED ${column.identity === "a" ? "ALWAYS" : "BY DEFAULT"} AS IDENTITY`);
  else if (column.value !== null) parts.push(`DEFAULT ${column.value}`);
  if (column.isRequired) parts.push("NOT NULL");
  const comment = column.comment === null ? "" : `  -- ${column.comment.replaceAll(/\s*\n\s*/g, " ")}\n`;
  return `${comment}  ${parts.join(" ")},`;
}
