package store

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/dsec-platform/dsec/internal/errdefs"
)

//go:embed migrations/*.sql
var embedded embed.FS

var migrations, _ = fs.Sub(embedded, "migrations")

// migrate applies the numbered files of dir (0001_name.sql, …) that have not been
// applied yet, each in a transaction, and refuses a database that a newer release wrote.
// db must begin its transactions with the write lock, so that two starting
// processes do not both apply a file.
func migrate(ctx context.Context, database *sql.DB, dir fs.FS) error {
	names, err := fs.Glob(dir, "*.sql")
	if err != nil {
		return failed("migrate", err)
	}
	slices.Sort(names)
	if _, err := database.ExecContext(ctx, `create table if not exists schema_version (version bigint not null)`); err != nil {
		return failed("migrate", err)
	}
	for i, name := range names {
		number, _, _ := strings.Cut(name, "_")
		if n, err := strconv.Atoi(number); err != nil || n != i+1 {
			return failed("migrate", fmt.Errorf("migration %s should have number %04d", name, i+1))
		}
		text, err := fs.ReadFile(dir, name)
		if err != nil {
			return failed("migrate", err)
		}
		if err := apply(ctx, database, int64(i+1), int64(len(names)), string(text)); err != nil {
			return failed("migrate "+name, err)
		}
	}
	return nil
}

func apply(ctx context.Context, database *sql.DB, number, newest int64, text string) error {
	tx, err := database.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // after Commit it does nothing
	var at int64
	if err := tx.QueryRowContext(ctx, `select coalesce(max(version), 0) from schema_version`).Scan(&at); err != nil {
		return err
	}
	if at > newest {
		return errdefs.Userf(errdefs.Unsupported, "session store", "start the release that wrote it, or a newer one",
			"its schema has version %d, this release knows %d", at, newest)
	}
	if at >= number {
		return nil
	}
	if _, err := tx.ExecContext(ctx, text); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `insert into schema_version (version) values ($1)`, number); err != nil {
		return err
	}
	return tx.Commit()
}
