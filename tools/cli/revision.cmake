# Writes OUTPUT, a source file that names VERSION and the git revision of SOURCE; only when it has
# changed. Runs with every build. Without a repository of its own, SOURCE may be what git archive
# made: that has written the revision into tools/cli/revision.txt. Else the revision is "unknown",
# and that of a repository around SOURCE is not asked for.
set(revision unknown)
file(STRINGS ${SOURCE}/tools/cli/revision.txt archived LIMIT_COUNT 1)
if(EXISTS ${SOURCE}/.git)
  execute_process(COMMAND git -C ${SOURCE} rev-parse --short=12 HEAD
    OUTPUT_VARIABLE head OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
  if(NOT failed)
    set(revision ${head})
    execute_process(COMMAND git -C ${SOURCE} diff --quiet HEAD ERROR_QUIET RESULT_VARIABLE changed)
    if(changed)
      string(APPEND revision "-changed")
    endif()
  endif()
elseif(archived MATCHES "^[0-9a-f]+$")
  string(SUBSTRING ${archived} 0 12 revision)
endif()
set(version ${VERSION})
if(NOT revision STREQUAL "unknown")
  string(APPEND version " (revision ${revision})")
endif()
set(text "#include \"tools/cli/revision.h\"\n\n\
const char* const pmstore::tools::kRevision = \"${revision}\";\n\
const char* const pmstore::tools::kVersion = \"${version}\";\n")
set(present)
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} present)
endif()
if(NOT present STREQUAL text)
  file(WRITE ${OUTPUT} "${text}")
endif()
