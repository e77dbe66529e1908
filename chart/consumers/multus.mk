# multus-rs in a distro's tree: `make download` fetches the files of multus.lock, `make generate` copies them to where Go compiles them in.
#
#   make multus-lock MULTUS_URL=https://release.example/v5.0.0 MULTUS_VERSION=5.0.0    pins another release
#   make download MULTUS_FROM=https://mirror.example/v5.0.0                            fetches the same files from a mirror
#
# Each line of the lock has the sha256, version and address of a file. Files whose sha256 is right already are not fetched again.

MULTUS_LOCK ?= multus.lock
MULTUS_DIR ?= build/multus
MULTUS_CURL ?= curl --fail --location --silent --show-error --retry 3

# The files of a release that a K3s tree needs.
MULTUS_FILES = ^(charts/assets/k3s-multus(-crd)?/|manifests/k3s/|bindata/go/)

.PHONY: download generate multus-lock

download:
	@set -eu; \
	test -e $(MULTUS_LOCK) || { echo "$(MULTUS_LOCK) is missing: write it with make multus-lock" >&2; exit 1; }; \
	base=$$(sed -n 's/^# release //p' $(MULTUS_LOCK)); \
	is_right() { echo "$$1  $$2" | sha256sum --check --status 2>/dev/null; }; \
	grep -v '^#' $(MULTUS_LOCK) | while read -r sum version address; do \
		path=$${address#"$$base"/}; file="$(MULTUS_DIR)/$$path"; \
		if is_right "$$sum" "$$file"; then continue; fi; \
		from=$(MULTUS_FROM); from=$${from:-$$base}/$$path; \
		mkdir -p "$$(dirname "$$file")"; \
		$(MULTUS_CURL) --output "$$file.part" "$$from"; \
		if ! is_right "$$sum" "$$file.part"; then \
			rm "$$file.part"; \
			echo "$$from has another sha256 than $(MULTUS_LOCK) says: ask its publisher, or pin another release" >&2; \
			exit 1; \
		fi; \
		mv "$$file.part" "$$file"; \
		echo "$$path $$version"; \
	done

generate: download
	@set -eu; \
	for package in static deploy; do \
		cp $(MULTUS_DIR)/bindata/go/$$package/zz_generated_bindata.go bindata/$$package/; \
		find embedded/$$package/embed -mindepth 1 ! -name .empty -delete; \
	done; \
	mkdir embedded/static/embed/charts; \
	base=$$(sed -n 's/^# release //p' $(MULTUS_LOCK)); \
	grep -v '^#' $(MULTUS_LOCK) | while read -r sum version address; do \
		path=$${address#"$$base"/}; \
		case "$$path" in \
			charts/*) cp "$(MULTUS_DIR)/$$path" embedded/static/embed/charts/ ;; \
			manifests/*) cp "$(MULTUS_DIR)/$$path" embedded/deploy/embed/ ;; \
		esac; \
	done

multus-lock:
	@set -eu; \
	: "$${MULTUS_URL:?name the release: MULTUS_URL=https://…}" "$${MULTUS_VERSION:?name its version: MULTUS_VERSION=5.0.0}"; \
	sums=$$($(MULTUS_CURL) "$$MULTUS_URL/SHA256SUMS"); \
	{ echo "# release $$MULTUS_URL"; \
	echo "$$sums" | while read -r sum path; do \
		if echo "$$path" | grep -Eq '$(MULTUS_FILES)'; then echo "$$sum $$MULTUS_VERSION $$MULTUS_URL/$$path"; fi; \
	done; } > $(MULTUS_LOCK).new; \
	mv $(MULTUS_LOCK).new $(MULTUS_LOCK)

# The shell above reads these variables; make exports by itself only those of its command line.
export MULTUS_URL MULTUS_VERSION
